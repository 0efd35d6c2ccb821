// What waits and why; for an opened pod the whole explanation, with what would let it in.

import {ask, authorised} from "./api.js";
import {byId, element, reconcile, say, visible} from "./dom.js";
import {age, count, podName} from "./words.js";

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
  document.title = waiting.total ? `(${waiting.total} waiting) neuron-scheduler` : "neuron-scheduler";
  for (const details of byId("waiting").querySelectorAll(":scope > li > details[open]")) {
    details.outdated ||= changed;
    if (details.outdated && now - details.asked > REST) explain(details);
  }
}

function draw(now) {
  const pods = answer.pods.map((item, index) => ({...item, key: item.pod.name ? podName(item.pod) : `#${index}`}));
  const list = byId("waiting"), some = pods.slice(0, shown), left = pods.length - some.length;
  say(byId("waiting-count"), Math.max(answer.total, pods.length));
  reconcile(list, some, (item) => item.key, row);
  some.forEach((item, index) => say(list.children[index].querySelector(".age"), age(item.pod.created, now)));
  byId("none-waits").hidden = pods.length > 0;
  byId("more-waiting").hidden = left === 0;
  say(byId("more-waiting"), `Show ${Math.min(AT_ONCE, left)} more of ${left}`);
}

function row(item, old) {
  const {pod} = item;
  const head = [
    element("span", {class: "name"}, podName(pod)),
    element("span", {class: "asks"}, pod.group ? `${pod.asks} · group ${pod.group}` : pod.asks),
    element("span", {class: "badge"}, item.cause), element("span", {class: "age"}),
    element("span", {class: "message"}, item.message || (pod.name ? "Not tried yet." : ""))];
  if (!pod.name) return element("li", {}, element("div", {class: "row"}, head));
  if (old) {
    old.querySelector("summary").replaceChildren(...head);
    if (old.firstElementChild.open) explain(old.firstElementChild);
    return old;
  }
  const details = element("details", {}, element("summary", {class: "row"}, head), element("div", {class: "why"}));
  details.pod = {namespace: pod.namespace, pod: pod.name};
  details.addEventListener("toggle", () => details.open && explain(details));
  return element("li", {}, details);
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
  const said = details.querySelector(".message").textContent.startsWith(visible(why.message));
  const first = why.groups.slice(0, GROUPS), others = why.groups.slice(GROUPS);
  return element("div", {},
    why.verdict !== "waits" && element("p", {}, VERDICTS[why.verdict] ?? why.verdict),
    !said && element("p", {}, why.message),
    why.capacityRequest && element("p", {}, why.capacityRequest),
    why.changes.length > 0 && part("What would let it in", why.changes.map(change)),
    why.groups.length > 0 && part("Node by node", first.map(group)),
    others.length > 0 && element("details", {},
      element("summary", {}, count(others.length, "other group")), element("ul", {}, others.map(group))),
    why.notes.length > 0 && part("Notes", why.notes.map((note) => element("li", {}, note))));
}

const part = (heading, items) => [element("h3", {}, heading), element("ul", {}, items)];

function group(nodes) {
  const more = nodes.nodes - nodes.names.length;
  const names = `${nodes.names.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
  return element("li", {},
    element("b", {}, count(nodes.nodes, "node")), ` (${names})`,
    nodes.instanceType && `, ${nodes.instanceType}`, ": ", nodes.reason || "takes the pod",
    nodes.arithmetic && element("div", {class: "quiet"}, nodes.arithmetic),
    nodes.keptFor.length > 0 && element("div", {class: "quiet"}, `Space is kept for ${nodes.keptFor.join(", ")}.`));
}

function change(item) {
  return element("li", {}, item.sentence,
    item.pods.length > 0 && element("ul", {}, item.pods.map((pod) => element("li", {}, leaving(pod)))),
    item.command && element("code", {}, item.command));
}

function leaving(pod) {
  const limit = pod.violates ? ", which does not allow it now" : "";
  return [podName(pod), pod.asks, `priority ${pod.priority}`,
    pod.started && `started ${age(pod.started, Date.now() / 1000)} ago`,
    pod.budgets.length > 0 && `budget ${pod.budgets.join(", ")}${limit}`,
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
