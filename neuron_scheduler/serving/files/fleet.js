// The machines: filtered, a part of them at a time, in the order of the answer; an opened one is shown in full.

import {byId, element, reconcile, say, svg} from "./dom.js";
import {MARKS, holderKey, keep, legend, picture} from "./machine.js";
import {count, podName, ranges} from "./words.js";

const AT_ONCE = 24;

let machines = [], shown = AT_ONCE;

const troubled = (machine) =>
  Boolean(machine.withheld) || machine.setAside || /[ud]/.test(machine.cores);
const STATES = {
  trouble: troubled,
  free: (machine) => machine.freeDevices > 0 && !machine.withheld,
  full: (machine) => !machine.cores.includes("f"),
};

function matching() {
  const name = byId("filter-name").value.trim().toLowerCase();
  const type = byId("filter-type").value, zone = byId("filter-zone").value;
  const state = STATES[byId("filter-state").value] ?? (() => true);
  return machines.filter((machine) => (!type || machine.instanceType === type) && (!zone || machine.zone === zone)
    && [machine.nodeName, machine.ultraserver].some((text) => text.toLowerCase().includes(name)) && state(machine));
}

/** Show the fleet's answer. */
export function show(fleet) {
  machines = fleet.machines;
  // Letters are given in the order of the nodes' names, so that the first drawing does not depend on who is worst.
  const keys = new Set();
  for (const machine of [...machines].sort((a, b) => (a.nodeName < b.nodeName ? -1 : 1))) {
    machine.holders.forEach((holder, index) => keys.add(holderKey(machine, holder, index)));
  }
  keep(keys);
  keys.forEach(legend);
  options(byId("filter-type"), machines.map((machine) => machine.instanceType));
  options(byId("filter-zone"), machines.map((machine) => machine.zone));
  types(fleet.types);
  draw();
}

function options(select, values) {
  const [all] = select.options, wanted = select.value;
  const names = [...new Set(values.filter(Boolean))].sort();
  if ([...select.options].slice(1).map((option) => option.value).join("\n") === names.join("\n")) return;
  select.replaceChildren(all, ...names.map((name) => {
    const option = element("option", {}, name);
    option.value = name;
    return option;
  }));
  select.value = names.includes(wanted) ? wanted : "";
}

function types(rows) {
  reconcile(byId("types").tBodies[0], rows, (row) => row.instanceType, (row) => element("tr", {},
    element("th", {scope: "row", title: row.instanceType}, row.instanceType || "no instance type"),
    [row.nodes, row.devices].map((number) => element("td", {class: "sum"}, number)),
    [row.free, row.used, row.withheld, row.largestBlock].map((number) => element("td", {}, number)),
    element("td", {class: "bar"}, bar(row))));
}

/** Return used, withheld and free devices as parts of one bar; the numbers stand beside it. */
function bar({devices, used, withheld}) {
  const part = (kind, from, size) => size > 0 && svg("rect", {class: kind, x: from, width: size, height: 1});
  return devices > 0 && svg("svg", {viewBox: `0 0 ${devices} 1`, preserveAspectRatio: "none", "aria-hidden": "true"},
    part("used", 0, used), part("held-back", used, withheld));
}

function draw() {
  const found = matching(), some = found.slice(0, shown), all = machines.length;
  say(byId("fleet-count"), found.length === all ? all : `${found.length} of ${all}`);
  reconcile(byId("machines"), some, (machine) => machine.nodeName, card);
  const left = found.length - some.length, more = byId("more-machines");
  more.hidden = left === 0;
  say(more, `Show ${Math.min(AT_ONCE, left)} more of ${left}`);
}

/** Return the words for what is unusual about a machine. */
function marks(machine) {
  const has = (state) => machine.cores.includes(state);
  return [machine.withheld, machine.setAside && "set aside", has("u") && "unknown holder", has("d") && "double-booked",
    has("k") && "space kept"].filter(Boolean);
}

function sentence(machine) {
  const unit = machine.units.includes("device") ? "device" : "core";
  const free = `${machine.freeDevices} of ${count(machine.devices, unit)} free`;
  return machine.freeBlocks.length ? `${free}, blocks of ${machine.freeBlocks.join(", ")}` : free;
}

function card(machine, old) {
  const words = marks(machine);
  const node = old ?? element("details", {class: "machine"}, element("summary"), element("div"));
  const [summary, body] = node.children;
  summary.setAttribute("aria-label", [machine.nodeName, machine.instanceType, sentence(machine), ...words].join("; "));
  node.classList.toggle("trouble", troubled(machine));
  summary.replaceChildren(
    element("span", {class: "name"}, machine.nodeName),
    element("span", {class: "type"}, machine.instanceType),
    picture(machine),
    element("span", {class: "free-count"}, sentence(machine)),
    element("span", {class: "badges"}, words.map((word) => element("span", {class: "badge"}, word))));
  body.replaceChildren(...inFull(machine));
  return node;
}

function inFull(machine) {
  const setAside = machine.setAside && "its kubelet has rejected pods; it is used last";
  const facts = [["Zone", machine.zone], ["UltraServer", machine.ultraserver], ["Takes no pods", machine.withheld],
    ["Set aside", setAside]];
  const holders = machine.holders.map((holder, index) => held(machine, holder, index));
  return [
    element("dl", {}, facts.filter(([, value]) => value)
      .map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])),
    holders.length ? element("ul", {class: "holders"}, holders) : element("p", {}, "No pod holds Neuron here.")];
}

function held(machine, holder, index) {
  const {letter, colour} = legend(holderKey(machine, holder, index));
  const what = holder.unknown ? "devices that cannot be read" : places(machine, holder.cores);
  const kind = holder.unknown ? "unknown" : `${holder.kept ? "kept" : "held"} ${colour}`;
  return element("li", {},
    element("span", {class: `letter ${kind}`, "aria-hidden": "true"}, holder.unknown ? MARKS.unknown : letter),
    element("span", {}, `${podName(holder)}: ${holder.kept ? "kept for it: " : ""}${what}`));
}

/** Return `devices 0-3`, or `cores 4-5` where a device is held in part, from runs of cores. */
function places(machine, runs) {
  const each = machine.coresPerDevice;
  const whole = runs.every(([first, last]) => first % each === 0 && (last + 1) % each === 0);
  if (!whole || !machine.units.includes("device")) return ranges(runs, "core");
  return ranges(runs.map(([first, last]) => [first / each, (last + 1) / each - 1]), "device");
}

/** Listen to the filter and the button, and say what the marks mean. */
export function listen() {
  byId("filter").addEventListener("submit", (event) => event.preventDefault());
  byId("filter").addEventListener("input", () => {
    shown = AT_ONCE;
    draw();
  });
  byId("more-machines").addEventListener("click", () => {
    const first = byId("machines").children.length;
    shown += AT_ONCE;
    draw();
    byId("machines").children[first]?.firstElementChild.focus();
  });
  const samples = [["free", "", "free"], ["held c0", "A", "held by a pod: a letter and a colour for each"],
    ["kept c0", "A", "kept for a pod"], ["unknown", MARKS.unknown, "unknown holder"],
    ["double", MARKS.double, "double-booked"], ["withheld", MARKS.withheld, "on a node that takes no pods"]];
  byId("key").append(...samples.map(([kind, mark, words]) => element("li", {},
    element("span", {class: `letter ${kind}`, "aria-hidden": "true"}, mark || "\u00a0"), words)));
}
