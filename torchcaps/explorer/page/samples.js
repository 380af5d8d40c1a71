// Strips of pictures to choose from: test pictures, and single digits that can be dragged onto the pad.

import { fromBase64, paint } from "./pictures.js";
import { rove } from "./roving.js";

/** @typedef {import("./api.js").Sample} Sample */
/** @typedef {import("./api.js").Model} Model */

const DRAG_FROM = 6; // pixels; less is a click

export const names = (labels, model) => labels.map((label) => model.classes[label] ?? label).join(" and ") || "none";

function pictureButton(pixels, shape, label) {
  const button = document.createElement("button");
  button.type = "button";
  button.setAttribute("aria-label", label);
  button.title = label;
  const canvas = document.createElement("canvas");
  paint(canvas, pixels, shape);
  canvas.style.aspectRatio = `${shape.width} / ${shape.height}`;
  button.append(canvas);
  return button;
}

const pictures = (sample, model) =>
  model.objects > 1 && sample.parts.length === model.objects ? sample.parts : [sample.pixels];

/** The layers that a test picture stands for. */
export function sampleLayers(sample, model) {
  return pictures(sample, model).map((pixels) => ({ base: fromBase64(pixels), strokes: [] }));
}

/** Pixels as text and number of strokes of those layers, and of the empty ones beside them. */
export function sampleTexts(sample, model) {
  const texts = pictures(sample, model);
  return Array.from({ length: Math.max(1, model.objects) }, (_, i) => [texts[i] ?? null, 0]);
}

/**
 * @param {HTMLElement} strip
 * @param {Sample[]} samples
 * @param {Model} model
 * @param {(index: number, time: number) => void} choose
 */
export function showSamples(strip, samples, model, choose) {
  strip.replaceChildren(
    ...samples.map((sample, index) => {
      const label = `test picture: ${names(sample.labels, model)}`;
      const button = pictureButton(fromBase64(sample.pixels), model.picture, label);
      button.dataset.sample = index;
      button.addEventListener("click", (event) => choose(index, event.timeStamp));
      return button;
    }),
  );
  strip.scrollLeft = 0;
  rove(strip);
}

export function markSample(strip, index) {
  for (const button of strip.children) {
    const chosen = Number(button.dataset.sample) === index;
    button.setAttribute("aria-pressed", chosen);
    if (chosen) {
      const left = button.offsetLeft; // the strip is positioned
      const hidden = left < strip.scrollLeft || left + button.offsetWidth > strip.scrollLeft + strip.clientWidth;
      if (hidden) strip.scrollLeft = left - strip.clientWidth / 2;
    }
  }
}

/** Of the objects in the test pictures a few of each class, in the order of the classes. */
function singles(samples, model) {
  const kept = model.classes.map(() => []);
  for (const { labels, parts } of samples) {
    parts.forEach((pixels, i) => {
      if (kept[labels[i]] && kept[labels[i]].length < 2) kept[labels[i]].push({ label: labels[i], pixels });
    });
  }
  return [...kept.map((each) => each[0]), ...kept.map((each) => each[1])].filter(Boolean);
}

/**
 * @param {HTMLElement} strip
 * @param {Sample[]} samples
 * @param {Model} model
 * @param {import("./pad.js").Pad} pad
 * @param {(pixels: Uint8Array, at: ?{x: number, y: number}, time: number) => void} put
 */
export function showDigits(strip, samples, model, pad, put) {
  strip.replaceChildren(
    ...singles(samples, model).map(({ label, pixels: text }) => {
      const pixels = fromBase64(text);
      const button = pictureButton(pixels, model.picture, `single digit: ${model.classes[label]}`);
      button.dataset.label = label;
      const dragged = draggable(button, pad, (at, time) => put(pixels, at, time));
      button.addEventListener("click", (event) => {
        if (!dragged()) put(pixels, null, event.timeStamp);
      });
      return button;
    }),
  );
  rove(strip);
}

/**
 * Lets a button's picture be carried to the pad by mouse, pen or finger.
 * @returns {() => boolean} whether the click that comes now is the end of a drag
 */
function draggable(button, pad, drop) {
  let start = null;
  let ghost = null;
  let carried = false;

  const follow = (event) => {
    ghost.style.transform = `translate(${event.clientX}px, ${event.clientY}px) translate(-50%, -50%)`;
  };
  const stop = () => {
    start = null;
    ghost?.remove();
    ghost = null;
    pad.canvas.classList.remove("target");
  };

  button.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    carried = false;
    start = event;
    // at once: a quick hand has left the button before its first movement is heard
    button.setPointerCapture(event.pointerId);
  });
  button.addEventListener("pointermove", (event) => {
    if (!start || event.pointerId !== start.pointerId) return;
    if (!ghost) {
      if (Math.hypot(event.clientX - start.clientX, event.clientY - start.clientY) < DRAG_FROM) return;
      ghost = document.createElement("canvas");
      const picture = button.querySelector("canvas");
      ghost.width = picture.width;
      ghost.height = picture.height;
      ghost.getContext("2d").drawImage(picture, 0, 0);
      ghost.className = "ghost";
      ghost.style.width = `${pad.canvas.clientWidth}px`;
      document.body.append(ghost);
      carried = true;
    }
    follow(event);
    pad.canvas.classList.toggle("target", inside(pad.place(event)));
  });
  button.addEventListener("pointerup", (event) => {
    if (ghost) {
      const at = pad.place(event);
      if (inside(at)) drop(at, event.timeStamp);
    }
    stop();
  });
  button.addEventListener("pointercancel", stop);
  return () => {
    const was = carried;
    carried = false;
    return was;
  };
}

const inside = ({ x, y }) => x >= 0 && x <= 1 && y >= 0 && y <= 1;

