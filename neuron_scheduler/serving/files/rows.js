// Pods as rows: what a pod lacks comes first. A group is one row, and a controller's pods, and pods without names alike.

import {element} from "./dom.js";
import {count, podName, short} from "./words.js";

const SELECTOR = "didn't match Pod's node affinity/selector";
// For a pod without a message, or one whose message the reader may not see.
const CAUSES = {
  scheduler_name: "Another scheduler than this one has to place it, by its schedulerName.",
  gated: "Its scheduling gates must be removed first.",
  group: "Its group has fewer members than it needs.",
  error: "The last attempt ended in an error. The scheduler retries.",
  capacity: "Not enough Neuron devices or cores are free.",
  fragmentation: "Enough is free, but no free block is large enough.",
  invalid_count: "No node serves this number of devices or cores.",
  unknown_holder: "Pods whose device ids are unknown may hold what it needs.",
  unhealthy: "The nodes report a problem with a Neuron device.",
  nominated: "A node has room, but it is kept for a pod of the same or a higher priority.",
  resources: "Not enough cpu, memory, host ports or pods per node.",
  taints: "The nodes are cordoned, or have taints that the pod does not tolerate.",
  affinity: "No node matches the pod's node selector or affinity rules.",
  volumes: "Its volumes or resource claims are missing, or no node can use them.",
  pod: "The pod itself must be changed.",
  other: "No node passes the filters.",
};

/** Return what a pod lacks: the figures in its message, else the reasons there, else the words for its cause. */
export function lack({cause, message}) {
  if (!message) return CAUSES[cause] ?? "";
  const [group, counts] = message.split(/0\/\d+ nodes are available: ([^]*)/);
  if (counts === undefined) return short(message);
  const reasons = counts.replace(/ preemption: .*?(?= Unknown ids: |$)/, "");
  const figures = /\. [A-Z][a-z ]+: (.*)$/.exec(reasons)?.[1];
  const others = reasons.replace(/\.$/, "").split(", ").filter((reason) => !reason.endsWith(SELECTOR));
  const lacks = figures ?? (others.length ? `${others.join(", ")}.` : reasons);
  return short([group.replace(/[^.]*: $/, "").trim(), titled(lacks)].filter(Boolean).join(" "));
}

/** Return the items in rows, in the order of their first ones: those with equal keys are one row. */
export function grouped(items, keyOf) {
  const rows = new Map();
  for (const item of items) {
    const key = keyOf(item);
    if (rows.has(key)) rows.get(key).push(item);
    else rows.set(key, [item]);
  }
  return [...rows].map(([key, members]) => ({key, members}));
}

/** Return what is one row: a group, a controller's pods, a pod, or pods without names that ask for and lack the same. */
export const keyOf = ({pod, cause}) => JSON.stringify(
  pod.name ? [pod.namespace, pod.group, pod.group ? "" : pod.owner || pod.name] : [cause, pod.asks]);

/** Return a row's name and what its pods ask for; pods without names are named by that, and counted as `word`. */
export function naming(members, word = "pod") {
  const [{pod}] = members, total = members.length, names = new Set(members.map((member) => member.pod.name)).size;
  const asks = members.every((member) => member.pod.asks === pod.asks) ? pod.asks : "";
  if (!pod.name) {
    return {name: [count(total, word), total > 1 && asks ? `${asks} each` : asks].filter(Boolean).join(", "), asks: ""};
  }
  if (names > 1) {
    const owner = pod.group || pod.owner.split(" ").at(-1);
    return {name: `${pod.namespace}/${owner}`, asks: `${names} × ${asks || "pods"}`};
  }
  const more = [asks, pod.group && `group ${pod.group}`, total > 1 && `${total} times`];
  return {name: podName(pod), asks: more.filter(Boolean).join(", ")};
}

/** Return the cells of a row; `label` is its cause in a word, `when` an element with a time. */
export function cells({name, asks}, label, sentence, when) {
  const word = label && element("b", {}, titled(label.replaceAll("_", " ")), sentence && ": ");
  return [element("span", {class: "name"}, name), element("span", {class: "lack"}, word, sentence),
    element("span", {class: "asks"}, asks), when];
}

const titled = (text) => text && text[0].toUpperCase() + text.slice(1);

/** Return the words of a button that shows more. */
export const more = (left, atOnce) =>
  left > atOnce ? `Show ${atOnce} more of ${left}` : `Show the other ${left === 1 ? "one" : left}`;
