// What was decided lately, the newest first; equal refusals one after the other are one row.

import {byId, element, reconcile, say} from "./dom.js";
import {cells, grouped, keyOf, lack, more, naming} from "./rows.js";
import {clock, short} from "./words.js";

const AT_ONCE = 12;

let last, shown = AT_ONCE;

/** Show the decisions. */
export function show(answer) {
  last = answer;
  let before = "", run = 0;
  const rows = grouped(answer.decisions, (decision) => {
    const key = decision.nodeName ? "" : `${keyOf(decision)} ${decision.cause}`;
    if (!key || key !== before) run += 1;
    before = key;
    return run;
  });
  const copies = new Map();
  const some = rows.slice(0, shown).map(({members}) => {
    const name = `${members[0].at} ${keyOf(members[0])}`, copy = copies.get(name) ?? 0;
    copies.set(name, copy + 1);
    return {key: `${name} ${copy}`, members, result: result(members[0])};
  });
  reconcile(byId("decisions"), some, (item) => item.key, row);
  byId("none-decided").hidden = rows.length > 0;
  const left = rows.length - some.length;
  byId("more-decisions").hidden = left === 0;
  say(byId("more-decisions"), more(left, AT_ONCE));
}

/** Return the node with the ids there, which the message has in full, or what the pod lacks. */
function result(decision) {
  if (!decision.nodeName) return lack(decision);
  return short(/ it gets (.*)\.$/.exec(decision.message)?.[1] ?? decision.nodeName);
}

function row({members, result}) {
  const [{at, cause, nodeName}] = members;
  const time = element("time", {datetime: new Date(at * 1000).toISOString()}, clock(at));
  return element("li", {class: nodeName ? "row good" : "row"}, cells(naming(members, members.length > 1 ? "refusal" : "pod"), nodeName ? "assigned" : cause, result, time));
}

/** Listen to the button. */
export function listen() {
  byId("more-decisions").addEventListener("click", () => {
    shown += AT_ONCE;
    show(last);
  });
}
