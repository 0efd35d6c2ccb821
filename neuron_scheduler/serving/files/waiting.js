// What waits and why; for an opened pod the whole explanation, with what would let it in.

import {ask, authorised} from "./api.js";
import {byId, element, reconcile, say} from "./dom.js";
import {cells, grouped, keyOf, lack, more, naming} from "./rows.js";
import {age, count, podName, short} from "./words.js";

const AT_ONCE = 20;
const GROUPS = 3;  // of nodes, the most promising ones, are shown at once
const REST = 10;  // seconds between two questions about one pod: an explanation is the dearest answer

const VERDICTS = {
  fits: "It fits now.",
  gated: "It has scheduling gates; this is what would happen without them.",
  bound: "It has a node.",
};

let answer, shown = AT_ONCE;

/** Show the waiting pods; if the fleet has `changed`, also the explanations that are open are asked for again. */
export function show(waiting, now, changed) {
  answer = waiting;
  draw(now);
  document.title = waiting.total ? `(${waiting.total} pending) neuron-scheduler` : "neuron-scheduler";
  for (const details of byId("waiting").querySelectorAll("li > details[open]")) {
    details.outdated ||= changed;
    if (details.outdated && now - details.asked > REST) explain(details);
  }
}

function draw(now) {
  const rows = grouped(answer.pods, keyOf), some = rows.slice(0, shown).map(entry), left = rows.length - some.length;
  for (const id of ["waiting-count", "waiting-there"]) say(byId(id), Math.max(answer.total, answer.pods.length));
  reconcile(byId("waiting"), some, (item) => item.key, row);
  for (const node of byId("waiting").querySelectorAll(".age")) say(node, age(node.created, now));
  byId("none-waits").hidden = rows.length > 0;
  byId("more-waiting").hidden = left === 0;
  say(byId("more-waiting"), more(left, AT_ONCE));
}

/** Return what a row shows; its `lead` is explained: the first that was tried, if there is one. */
function entry({key, members}) {
  const lead = members.find((member) => member.message) ?? members[0];
  return {key, members, lead, lacks: lack(lead), cause: lead.cause, created: members[0].pod.created, ...naming(members)};
}

/** Return what the row of a member shows in its group's, which says already what the lead lacks. */
function entryInGroup(member, lead) {
  const {pod, cause} = member, lacks = lack(member), differs = lacks !== lack(lead);
  return {key: podName(pod), members: [member], lead: member, lacks: differs && lacks, cause: differs && cause,
    created: pod.created, name: pod.name, asks: pod.asks !== lead.pod.asks && pod.asks};
}

function row(item, old) {
  const {created, lead: {pod}} = item, since = age(created, Date.now() / 1000);
  const head = cells(item, item.cause, item.lacks, Object.assign(element("span", {class: "age"}, since), {created}));
  if (!pod.name) return element("li", {class: "row"}, head);
  const li = old ?? element("li", {}, element("details", {}, element("summary", {class: "row"}),
    element("div", {class: "why"}), element("ol", {class: "rows", "aria-label": "Members"})));
  const details = li.firstElementChild;
  details.firstElementChild.replaceChildren(...head);
  Object.assign(details, {item, pod: {namespace: pod.namespace, pod: pod.name}});
  if (!old) details.addEventListener("toggle", () => fill(details));
  else fill(details);
  return li;
}

/** Fill a row that is open: the explanation, and the members if there are several; they are many elements. */
function fill(details) {
  const {members, lead} = details.item;
  if (details.open) explain(details);
  const inner = details.open && members.length > 1 ? members.map((member) => entryInGroup(member, lead)) : [];
  reconcile(details.lastElementChild, inner, (member) => member.key, row);
}

async function explain(details) {
  const box = details.querySelector(".why");
  Object.assign(details, {outdated: false, asked: Date.now() / 1000});
  if (!box.hasChildNodes()) box.append(element("p", {}, "Asking why …"));
  try {
    const why = await ask("why", details.pod);
    reconcile(box, [why], () => "why", (answer) => explained(answer, details));
  } catch (error) {
    const hint = authorised() ? "" : " A bearer token may be needed: see Names at the top.";
    const text = `No explanation: ${error.message}.${hint}`;
    reconcile(box, [text], () => "why", () => element("p", {class: "bad"}, text));
  }
}

function explained(why, details) {
  const head = cells({}, why.cause, lack(why));  // the row's sentence may be older
  details.querySelector(".lack").replaceWith(head[1]);
  const first = why.groups.slice(0, GROUPS), others = why.groups.slice(GROUPS);
  return element("div", {},
    why.verdict !== "waits" && element("p", {}, VERDICTS[why.verdict] ?? why.verdict),
    why.changes.length > 0 && part("What would let it in", why.changes.map(change)),
    why.capacityRequest && element("p", {}, why.capacityRequest),
    why.groups.length > 0 && part("Node by node", first.map(group)),
    others.length > 0 && element("details", {},
      element("summary", {}, count(others.length, "other group")), element("ul", {}, others.map(group))),
    element("h3", {}, "Message"), element("p", {class: "quiet"}, short(why.message)),
    why.notes.length > 0 && part("Notes", why.notes.map((note) => element("li", {}, note))));
}

const part = (heading, items) => [element("h3", {}, heading), element("ul", {}, items)];

function group(nodes) {
  const more = nodes.nodes - nodes.names.length;
  const names = `${nodes.names.map(short).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
  return element("li", {},
    element("b", {}, count(nodes.nodes, "node")), nodes.instanceType && ` ${nodes.instanceType}`,
    `: ${nodes.reason || "would take the pod"}`,
    nodes.arithmetic && element("div", {class: "quiet"}, nodes.arithmetic),
    element("div", {class: "quiet"}, names),
    nodes.keptFor.length > 0 && element("div", {class: "quiet"}, `Reserved for ${nodes.keptFor.join(", ")}.`));
}

function change(item) {
  return element("li", {}, short(item.sentence),
    item.pods.length > 0 && element("ul", {}, item.pods.map((pod) => element("li", {}, leaving(pod)))),
    item.command && element("code", {}, item.command));
}

function leaving(pod) {
  return [podName(pod), pod.asks, `priority ${pod.priority}`,
    pod.started && `started ${age(pod.started, Date.now() / 1000)} ago`,
    pod.budgets.length > 0 && `budget ${pod.budgets.join(", ")} ${pod.violates ? "does not allow it now" : "allows it"}`,
    pod.evictable && "the scheduler may evict it"].filter(Boolean).join("; ");
}

/** Listen to the button. */
export function listen() {
  byId("more-waiting").addEventListener("click", () => {
    const first = byId("waiting").children.length;
    shown += AT_ONCE;
    draw(Date.now() / 1000);
    (byId("waiting").children[first]?.querySelector("summary") ?? byId("more-waiting")).focus();
  });
}
