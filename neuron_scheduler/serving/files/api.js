// The scheduler's answers. An answer that has not changed is not sent again: each has an ETag.

let token = "", namespace = "";
const known = new Map();

/** What went wrong with a question; `status` is 0 if the scheduler did not answer. */
export class NoAnswer extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Use a bearer token from now on, an empty one for none, and ask about a namespace. They are kept nowhere else. */
export function authorise(value, about = "") {
  [token, namespace] = [value, about];
  known.clear();
}

/** Return whether there is a token. */
export const authorised = () => token !== "";

/**
 * Return the answer to a question, the same object if it has not changed.
 *
 * Paths are relative to the page, so that it also works behind a proxy's prefix.
 */
export async function ask(question, parameters = {}) {
  const path = `${question}?${new URLSearchParams({...(token && namespace && {namespace}), ...parameters})}`;
  const before = known.get(path), headers = {};
  if (token) headers.Authorization = `Bearer ${token}`;
  if (before) headers["If-None-Match"] = before.tag;
  const asked = token;
  const answer = await send(path, headers);
  if (asked !== token) return ask(question, parameters);  // another token meanwhile: this answer is not for its holder
  if (answer.status === 304 && before) return before.value;
  const text = await answer.text();
  if (!answer.ok) throw new NoAnswer(answer.status, message(text) || `${answer.status} ${answer.statusText}`);
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new NoAnswer(0, "the answer is not from a scheduler");
  }
  const tag = answer.headers.get("ETag");
  if (tag) known.set(path, {tag, value});
  return value;
}

async function send(path, headers) {
  try {
    const signal = AbortSignal.timeout(10000);
    return await fetch(`v1/${path}`, {headers, cache: "no-store", credentials: "omit", signal});
  } catch {
    throw new NoAnswer(0, "no answer");
  }
}

/** Return the words of a `Status`, or of a plain text. */
function message(text) {
  try {
    return JSON.parse(text).message;
  } catch {
    return text.trim().slice(0, 300);
  }
}
