// Asks the scheduler again and again, shows its answers, and says when there are none.

import {NoAnswer, ask, authorise, authorised} from "./api.js";
import {byId, say} from "./dom.js";
import * as decisions from "./decisions.js";
import * as fleet from "./fleet.js";
import * as waiting from "./waiting.js";

const EVERY = 2000, HIDDEN = 60000, LONGEST = 30000;  // milliseconds
const SHARE = 3;  // a large fleet's answers take long: the page asks for them a third of the time at most

let timer, shown, failures = 0, since = 0, paused = false, running = false, again = false, took = 0;
let tokens = 0;  // how many tokens there were: an answer for an earlier one is neither shown nor blamed on the present one

async function update() {
  if (running) {
    again = true;
    return;
  }
  running = true;
  clearTimeout(timer);
  const begun = performance.now(), token = tokens;
  try {
    const [machines, pods, lately] = await Promise.all([ask("fleet"), ask("waiting"), ask("decisions")]);
    if (token !== tokens) return;
    if (![machines.machines, machines.types, pods.pods, lately.decisions].every(Array.isArray)) {
      throw new NoAnswer(0, "the answer is not from a scheduler");
    }
    const now = Date.now() / 1000;
    const ending = fleet.show(machines);
    waiting.show(pods, now, machines !== shown);
    shown = machines;
    decisions.show(lately);
    const notes = new Set([machines, pods, lately].flatMap((answer) => answer.notes));
    if (ending) notes.add(`Node names are shown without ${ending}`);
    say(byId("notes"), [...notes].join(" "));
    failures = 0;
    since = now;
    say(byId("names"), authorised() ? "token in use" : "hidden");
    state("", paused ? "Updates are paused." : "Up to date.");
  } catch (error) {
    if (token !== tokens) return;
    failures += 1;
    if (error instanceof NoAnswer) lost(error);
    else {
      console.error(error);
      lost(new NoAnswer(0, "its answer cannot be shown, perhaps because it is of another version"));
    }
  } finally {
    running = false;
    took = performance.now() - begun;
    next();
  }
}

function next() {
  clearTimeout(timer);
  if (again) {
    again = false;
    update();
    return;
  }
  if (paused) return;
  const soon = Math.min(Math.max(EVERY * 2 ** failures, took * SHARE), LONGEST);
  timer = setTimeout(update, document.hidden ? Math.max(HIDDEN, soon) : soon);
}

function lost(error) {
  if (error.status === 401 || error.status === 403) {
    if (authorised()) {
      authorise("");
      again = true;
      say(byId("token-error"), `The token was refused: ${error.message}`);
    } else state("bad", "The scheduler does not show this without a token: enter one under Names.");
    return;
  }
  const seen = since ? ` What you see is from ${new Date(since * 1000).toLocaleTimeString([], {hour12: false})}.` : "";
  const what = error.status ? "The scheduler cannot answer" : "Lost the scheduler";
  state("bad", `${what} (${error.message}); trying again.${seen}`);
}

function state(kind, words) {
  byId("status").className = kind;
  document.body.classList.toggle("stale", kind === "bad" && since > 0);
  say(byId("status"), words);
}

function listen() {
  fleet.listen();
  waiting.listen();
  decisions.listen();
  document.addEventListener("visibilitychange", () => document.hidden ? next() : paused || update());
  byId("pause").addEventListener("click", () => {
    paused = !paused;
    byId("pause").setAttribute("aria-pressed", String(paused));
    if (paused) {
      clearTimeout(timer);
      state("", "Updates are paused.");
    } else update();
  });
  byId("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    tokens += 1;
    authorise(byId("token").value.trim(), byId("namespace").value.trim());
    say(byId("token-error"), "");
    byId("token").value = "";
    failures = 0;
    update();
  });
  byId("forget").addEventListener("click", () => {
    tokens += 1;
    authorise("");
    byId("token").value = "";
    fleet.show({machines: [], types: []});
    waiting.show({pods: [], total: 0}, 0, false);
    decisions.show({decisions: []});
    update();
  });
}

listen();
update();
