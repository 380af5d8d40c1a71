// One polite line at the top for what went wrong; the page goes on as it was.

const box = document.getElementById("message");
const text = document.getElementById("message-text");
let timer = 0;

/** @param {string} sentence @param {{kind?: "problem"|"note", seconds?: number}} [how] */
export function say(sentence, { kind = "problem", seconds = 0 } = {}) {
  clearTimeout(timer);
  box.dataset.kind = kind;
  text.textContent = sentence;
  box.hidden = false;
  if (seconds) timer = setTimeout(hush, seconds * 1000);
}

export function hush() {
  clearTimeout(timer);
  box.hidden = true;
  text.textContent = "";
}

/** For live regions: only when it changes, as it would be read out again. */
export function setText(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

document.getElementById("message-close").addEventListener("click", hush);
