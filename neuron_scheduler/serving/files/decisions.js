// What was decided lately, the newest first.

import {byId, element, reconcile, say} from "./dom.js";
import {clock, podName} from "./words.js";

const AT_ONCE = 12;

let last, shown = AT_ONCE;

/** Show the decisions. */
export function show(answer) {
  last = answer;
  const copies = new Map();
  const rows = answer.decisions.slice(0, shown).map((decision) => {
    const name = `${decision.at} ${podName(decision.pod)}`, copy = copies.get(name) ?? 0;
    copies.set(name, copy + 1);
    return {...decision, key: `${name} ${copy}`};
  });
  reconcile(byId("decisions"), rows, (row) => row.key, (row) => element("li", {class: "row"},
    element("time", {datetime: new Date(row.at * 1000).toISOString()}, clock(row.at)),
    element("span", {class: "name"}, podName(row.pod)),
    element("span", {class: row.nodeName ? "badge good" : "badge"}, row.nodeName || row.cause || "waits"),
    element("span", {class: "message"}, row.message)));
  byId("none-decided").hidden = rows.length > 0;
  const left = answer.decisions.length - rows.length;
  byId("more-decisions").hidden = left === 0;
  say(byId("more-decisions"), `Show ${Math.min(AT_ONCE, left)} more of ${left}`);
}

/** Listen to the button. */
export function listen() {
  byId("more-decisions").addEventListener("click", () => {
    shown += AT_ONCE;
    show(last);
  });
}
