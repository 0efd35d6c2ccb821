// One machine as a picture: a rectangle for each run of equal cores, a letter for who holds it. Colour is never alone.

import {svg} from "./dom.js";

const WIDTH = 184, HEIGHT = 20, GAP = 6, NARROWEST = 8;
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const COLOURS = 14;
export const MARKS = {unknown: "?", double: "!", withheld: "–"};

const places = new Map();
let spare = [];

/** Return the letter and the colour of a holder: given when it is first drawn, and then kept until it is gone. */
export function legend(key) {
  if (!places.has(key)) places.set(key, spare.pop() ?? places.size);
  const place = places.get(key);
  return {letter: LETTERS[place % LETTERS.length], colour: `c${place % COLOURS}`};
}

/** Forget all holders but these; the others' letters are free again. */
export function keep(keys) {
  const gone = [...places].filter(([key]) => !keys.has(key));
  for (const [key] of gone) places.delete(key);
  spare = [...spare, ...gone.map(([, place]) => place)].sort((a, b) => b - a);
}

/** Return what names a holder: its pod, or its place where names are hidden. */
export const holderKey = (machine, holder, index) =>
  holder.name ? `${holder.namespace}/${holder.name}` : `${machine.nodeName}#${holder.cores[0]?.[0] ?? `u${index}`}`;

/** Return the places of the devices: left, top and the lines that link them. */
function layout(machine) {
  const {devices, shape} = machine;
  let inRow = 4;
  if (shape === "ring") inRow = Math.max(1, Math.ceil(devices / 2));
  else if (shape !== "torus") {
    const most = Math.min(8, Math.floor((WIDTH + GAP) / (NARROWEST * machine.coresPerDevice + GAP))) || 1;
    inRow = Math.max(1, Math.ceil(devices / Math.ceil(devices / most)));
  }
  const width = Math.min(46, (WIDTH - GAP * (inRow - 1)) / inRow);
  const places = Array.from({length: devices}, (_, device) => {
    const row = Math.floor(device / inRow), column = device % inRow;
    const turned = shape === "ring" && row === 1;
    return {left: (turned ? inRow - 1 - column : column) * (width + GAP), top: row * (HEIGHT + GAP)};
  });
  return {places, width, rows: Math.ceil(devices / inRow), inRow};
}

function links(machine, {places, width, inRow}) {
  const lines = [];
  const link = (from, to) => lines.push(
    `M${from.left + width / 2} ${from.top + HEIGHT / 2}L${to.left + width / 2} ${to.top + HEIGHT / 2}`);
  if (!["torus", "ring", "line"].includes(machine.shape)) return "";
  places.forEach((place, device) => {
    const right = places[device + 1], below = places[device + inRow];
    const endsRow = device % inRow === inRow - 1;
    if (machine.shape === "torus") {
      if (right && !endsRow) link(place, right);
      if (below) link(place, below);
    } else if (right && (machine.shape === "ring" || !endsRow)) link(place, right);
  });
  if (machine.shape === "ring" && places.length > 2) link(places.at(-1), places[0]);
  return lines.join("");
}

/** Return, for each core, its class and its mark; `machine.cores` has a letter of `CoreState` for each. */
function faces(machine) {
  const holders = new Map();
  machine.holders.forEach((holder, index) => {
    const {letter, colour} = legend(holderKey(machine, holder, index));
    for (const [first, last] of holder.cores) {
      const end = Math.min(last, machine.cores.length - 1);
      for (let core = first; core <= end; core += 1) holders.set(core, {letter, colour});
    }
  });
  const free = machine.withheld ? {kind: "withheld", mark: MARKS.withheld} : {kind: "free", mark: ""};
  return [...machine.cores].map((state, core) => {
    const {letter, colour} = holders.get(core) ?? {letter: "", colour: ""};
    switch (state) {
      case "h": return {kind: `held ${colour}`, mark: letter};
      case "k": return {kind: `kept ${colour}`, mark: letter};
      case "f": return free;
      case "d": return {kind: "double", mark: MARKS.double};
      default: return {kind: "unknown", mark: MARKS.unknown};
    }
  });
}

/** Return the picture of a machine: one path and one text for each kind of core, however many cores there are. */
export function picture(machine) {
  const plan = layout(machine), each = machine.coresPerDevice, cell = plan.width / each;
  const all = faces(machine), shapes = new Map();
  plan.places.forEach(({left, top}, device) => {
    for (let core = 0; core < each;) {
      const face = all[device * each + core] ?? {kind: "unknown", mark: MARKS.unknown};
      const same = (other) => other?.kind === face.kind && other.mark === face.mark;
      let end = core + 1;
      while (end < each && same(all[device * each + end])) end += 1;
      const run = (end - core) * cell, name = `${face.kind}|${face.mark}`;
      const shape = shapes.get(name) ?? {...face, path: "", xs: [], ys: []};
      shapes.set(name, shape);
      shape.path += `M${left + core * cell + 0.5} ${top + 0.5}h${run - 1}v${HEIGHT - 1}h${1 - run}z`;
      if (face.mark && run >= NARROWEST) {
        shape.xs.push(left + core * cell + run / 2);
        shape.ys.push(top + HEIGHT / 2 + 4);
      }
      core = end;
    }
  });
  const high = plan.rows * (HEIGHT + GAP) - GAP;
  return svg("svg", {viewBox: `-1 -1 ${WIDTH + 2} ${high + 2}`, "aria-hidden": "true", class: "picture"},
    svg("path", {d: links(machine, plan), class: "link"}),
    [...shapes.values()].map((shape) => [
      svg("path", {d: shape.path, class: shape.kind}),
      shape.xs.length > 0 && svg("text", {x: shape.xs.join(" "), y: shape.ys.join(" "), class: shape.kind},
        shape.mark.repeat(shape.xs.length)),
    ]));
}
