// Numbers and times as people read them.

/** Return `1 device`, `2 devices`. */
export const count = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;

/** Return an age like kubectl's: `12s`, `5m`, `3h`, `2d`; empty for a time that is not known. */
export function age(since, now) {
  if (!since) return "";
  const seconds = Math.max(0, Math.round(now - since));
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

let ending = "";

/** Find the end that all these names of nodes have in common, from a dot on; `short` leaves it out. Return it. */
export function findEnding(names) {
  ending = names.length > 1 ? names[0] : "";
  while (ending && !names.every((name) => name.endsWith(ending) && name !== ending)) {
    ending = ending.slice(1).replace(/^[^.]*/, "");
  }
  return ending;
}

/** Return a text without the common end of the nodes' names. */
export const short = (text) => (ending ? text.replaceAll(ending, "") : text);

/** Return a clock time of this browser's zone. */
export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], {hour12: false});

/** Return `devices 0-3, 8` of the first and the last number of each run. */
export const ranges = (runs, word) =>
  `${word}${runs.length === 1 && runs[0][0] === runs[0][1] ? "" : "s"} `
  + runs.map(([first, last]) => (first === last ? first : `${first}-${last}`)).join(", ");

/** Return `namespace/name`; what stands for a name that the reader may not see otherwise. */
export const podName = (pod, hidden = "a pod") => (pod.name ? `${pod.namespace}/${pod.name}` : hidden);
