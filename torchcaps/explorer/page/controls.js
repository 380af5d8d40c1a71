// Buttons and keys of the page, and what they do.

import { helpDialog, listenToKeys } from "./keys.js";
import { hush } from "./message.js";

const element = (id) => document.getElementById(id);
const onClick = (id, action) => element(id).addEventListener("click", action);

/** @param {object} page what main.js offers */
export function connectControls(page) {
  const { pad, pose, routing, address } = page;
  const clear = (event) => page.sketch()?.clear(event.timeStamp);
  const undo = (event) => page.sketch()?.undo(event.timeStamp);
  const activate = (layer) => () => page.sketch()?.activate(layer);

  element("model").addEventListener("change", (event) => page.chooseModel(event.target.value));
  element("pose-class").addEventListener("change", (event) => page.chooseClass(Number(event.target.value)));
  onClick("clear", clear);
  onClick("undo", undo);
  onClick("another", page.anotherSample);
  onClick("share", () => address.share());
  onClick("export", page.save);
  for (const button of element("pens").children) {
    button.addEventListener("click", () => page.chooseTool(button.dataset.tool));
  }
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address holds the state
    pad.canvas.focus();
  });
  pose.addEventListener("edit", () => address.later());
  for (const change of ["step", "steps", "watch"]) routing.addEventListener(change, () => address.later());

  const step = (by) => (event) => {
    if (!element("routing").contains(event.target)) return;
    event.preventDefault();
    routing.move(by);
  };
  listenToKeys({
    c: clear,
    z: undo,
    n: page.anotherSample,
    ...Object.fromEntries(Array.from({ length: 9 }, (_, i) => [i + 1, activate(i)])),
    d: () => page.chooseTool("draw"),
    e: () => page.chooseTool("erase"),
    m: () => page.several() && page.chooseTool("move"),
    ArrowLeft: step(-1),
    ArrowRight: step(1),
    ",": () => routing.move(-1),
    ".": () => routing.move(1),
    Escape: () => {
      pose.stop();
      routing.stop();
      routing.unpin();
      hush();
    },
    "?": helpDialog(),
  });
}
