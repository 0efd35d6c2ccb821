// Elements and text. Nothing from the cluster is ever parsed as HTML: all of it becomes text nodes and attributes.

const SVG = "http://www.w3.org/2000/svg";
// Control characters, and those that turn or hide text: a name with them must not look like another name.
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** Return a text with its control characters as `\u202e`. */
export function visible(text) {
  return String(text).replace(INVISIBLE, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : visible(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child || child === 0)
    .map((child) => (child instanceof Node ? child : visible(child))));
  return node;
}

/** Return an element of HTML; strings among the children become text. */
export const element = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);

/** Return an element of SVG. */
export const svg = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

/** Return the element of the page with this id. */
export const byId = (id) => document.getElementById(id);

/** Set a text only if it differs, so that assistive technology is not told the same twice. */
export function say(node, text) {
  if (node.textContent !== visible(text)) node.textContent = visible(text);
}

/**
 * Make `parent` show one child for each item, in their order, and change no child whose item has not changed.
 *
 * `key` names an item, `make` returns its element. What has the focus keeps it, wherever it moves.
 */
export function reconcile(parent, items, key, make) {
  const old = new Map([...parent.children].map((child) => [child.itemKey, child]));
  const focused = document.activeElement;
  const focusedKey = [...old].find(([, child]) => child.contains(focused))?.[0];
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    const state = JSON.stringify(item);
    let child = old.get(name);
    if (child?.itemState !== state) {
      const fresh = make(item, child);
      if (child && fresh !== child) {
        if (place === child) place = fresh;
        child.replaceWith(fresh);
      }
      child = Object.assign(fresh, {itemKey: name, itemState: state});
    }
    old.delete(name);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const child of old.values()) child.remove();
  if (focusedKey !== undefined && document.activeElement !== focused) {
    if (focused.isConnected) focused.focus({preventScroll: true});
    else [...parent.children].find((child) => child.itemKey === focusedKey)?.focus({preventScroll: true});
  }
}
