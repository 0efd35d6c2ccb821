// The machines: filtered, a part of them at a time, in the order of the answer; an opened one is shown in full.

import {byId, element, reconcile, say, svg} from "./dom.js";
import {MARKS, holderKey, keep, legend, picture} from "./machine.js";
import {more} from "./rows.js";
import {count, findEnding, podName, ranges, short} from "./words.js";

const AT_ONCE = 24;

let machines = [], shown = AT_ONCE;

const troubled = (machine) =>
  Boolean(machine.withheld) || machine.setAside || /[ud]/.test(machine.cores);
const BROKEN = ["unhealthy", "malformed"];
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

/** Show the fleet's answer; return the end of the nodes' names that is left out. */
export function show(fleet) {
  machines = fleet.machines;
  const ending = findEnding(machines.map((machine) => machine.nodeName));
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
  return ending;
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
    element("td", {}, element("b", {}, row.free)),
    [row.largestBlock, row.used, row.withheld].map((number) => element("td", {}, number)),
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
  say(byId("fleet-there"), all);
  reconcile(byId("machines"), some.map((machine) => ({...machine, title: short(machine.nodeName)})),
    (machine) => machine.nodeName, card);
  for (const id of ["types-there", "types-section", "filter"]) byId(id).hidden = all === 0;
  byId("key").hidden = found.length === 0;
  byId("show-all").hidden = found.length === all;
  byId("none-found").hidden = found.length > 0;
  say(byId("none-found"), all ? "No machine matches the filter."
    : "No node has Neuron devices or cores. The command neuron-scheduler check says what is missing.");
  const left = found.length - some.length;
  byId("more-machines").hidden = left === 0;
  say(byId("more-machines"), more(left, AT_ONCE));
}

/** Return the words for what is unusual about a machine. */
function marks(machine) {
  const has = (state) => machine.cores.includes(state);
  return [machine.withheld.replaceAll("_", " "), machine.setAside && "set aside", has("u") && "unknown holder", has("d") && "double-booked",
    has("k") && "reserved"].filter(Boolean);
}

/** Return what is free, and its blocks: the sizes with how often, the largest first. */
function free(machine) {
  const unit = machine.units.includes("device") ? "device" : "core";
  const blocks = machine.freeBlocks, sizes = [...new Set(blocks)];
  const alike = (size) => blocks.filter((other) => other === size).length;
  const listed = sizes.map((size) => (alike(size) > 1 ? `${alike(size)}×${size}` : size)).join(", ");
  const some = sizes.length > 1 ? `in blocks of ${listed}` : `in ${count(blocks.length, "block")} of ${sizes[0]}`;
  return [`${machine.freeDevices} of ${count(machine.devices, unit)} free`, ...(blocks.length > 1 ? [some] : [])];
}

function card(machine, old) {
  const words = marks(machine);
  const node = old ?? element("details", {class: "machine"}, element("summary"), element("div"));
  const [summary, body] = node.children;
  summary.setAttribute("aria-label", [machine.nodeName, machine.instanceType, free(machine).join(", "), ...words].join("; "));
  node.classList.toggle("trouble", /[ud]/.test(machine.cores) || BROKEN.includes(machine.withheld));
  summary.replaceChildren(
    element("span", {class: "name"}, machine.title),
    element("span", {class: "type"}, element("span", {}, machine.instanceType), " ",
      element("span", {}, machine.zone)),
    picture(machine),
    element("span", {}, free(machine)[0]), element("span", {class: "type"}, free(machine)[1] ?? ""),
    element("span", {class: "badges"}, words.map((word) => element("span", {class: "badge"}, word))));
  body.replaceChildren(...inFull(machine));
  return node;
}

function inFull(machine) {
  const setAside = machine.setAside && "its kubelet has rejected pods; it is used last";
  const facts = [["Node", machine.nodeName], ["UltraServer", machine.ultraserver], ["Set aside", setAside]];
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
    element("span", {}, `${podName(holder)}: ${holder.kept ? "reserved, " : ""}${what}`));
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
  byId("filter").addEventListener("reset", () => setTimeout(draw));  // after the fields are empty
  byId("more-machines").addEventListener("click", () => {
    const first = byId("machines").children.length;
    shown += AT_ONCE;
    draw();
    byId("machines").children[first]?.firstElementChild.focus();
  });
  const samples = [["free", "", "free"], ["held c0", "A", "held: a letter and a colour for each pod"],
    ["kept c0", "A", "reserved for a pod"], ["unknown", MARKS.unknown, "unknown holder"],
    ["double", MARKS.double, "double-booked"], ["withheld", MARKS.withheld, "withheld: the node takes no pods"]];
  byId("key").append(...samples.map(([kind, mark, words]) => element("li", {},
    element("span", {class: `letter ${kind}`, "aria-hidden": "true"}, mark || "\u00a0"), words)));
}
