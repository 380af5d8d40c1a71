// From strokes to the pixels that a network was trained on. Nothing here touches the page.
//
// Handwritten digits of the well-known sets were scaled to 20 pixels and put with their centre of mass in the middle of
// 28 x 28. What is drawn here is treated the same way; drawn anywhere and of any size, it is seen alike.

import { count, newCanvas, toImageData } from "./pictures.js";

/** @typedef {import("./api.js").Model} Model */
/** @typedef {{erase: boolean, points: number[]}} Stroke  x and y in turn, each 0 to 1 over the pad */
/** @typedef {{base: ?Uint8Array, strokes: Stroke[]}} Layer  a picture, and what was drawn on it */

const DIGIT = 28;
const LONGER_SIDE = 20;
const PEN = 2.4;
const ERASER = 0.115; // of the pad's width, as it is seen there
const FINE = 112; // pixels across, to find what an eraser has left
const LARGEST_SCALE = 4; // a dot stays a dot
const MIDDLE = 14.5; // of the centre of mass, as measured on the data: pixel 14, of which the middle is at 14.5
const FARTHEST = 4; // that a digit's box may be from the middle where a picture shows several
const SOFT = [0.1, 0.8, 0.1];
const GAIN = 1.2; // the middle of a line is white in spite of the softness

export const emptyLayer = () => ({ base: null, strokes: [] });
export const isEmpty = (layer) => layer.base === null && layer.strokes.length === 0;

/** Paints strokes with a pen of this width after moving and scaling them: x -> x * scaleX + shiftX. */
export function paintStrokes(context, strokes, { scaleX, scaleY, shiftX, shiftY, pen, colour = "#fff" }) {
  const eraser = ERASER * Math.min(scaleX, scaleY);
  context.lineCap = "round";
  context.lineJoin = "round";
  for (const { erase, points } of strokes) {
    context.strokeStyle = erase ? "#000" : colour;
    context.lineWidth = erase ? eraser : pen;
    const x = (i) => points[i] * scaleX + shiftX;
    const y = (i) => points[i + 1] * scaleY + shiftY;
    context.beginPath();
    context.moveTo(x(0), y(0));
    // through the middles of neighbours, so that a quick hand still draws a round line
    for (let i = 2; i + 2 < points.length; i += 2) {
      context.quadraticCurveTo(x(i), y(i), (x(i) + x(i + 2)) / 2, (y(i) + y(i + 2)) / 2);
    }
    const last = points.length - 2;
    context.lineTo(x(last), y(last) + (last === 0 ? 0.001 : 0));
    context.stroke();
  }
}

const scratch = new Map();

/** A black canvas of this size; the same one each time, as this runs at every movement of the hand. */
function blackboard(width, height) {
  const key = `${width}x${height}`;
  if (!scratch.has(key)) {
    scratch.set(key, newCanvas(width, height).getContext("2d", { willReadFrequently: true }));
  }
  const context = scratch.get(key);
  context.fillStyle = "#000";
  context.fillRect(0, 0, width, height);
  return context;
}

function grey(context, width, height) {
  const { data } = context.getImageData(0, 0, width, height);
  return Float32Array.from({ length: width * height }, (_, i) => data[4 * i]);
}

/** A scanner's softness. */
function softened(values, size) {
  const along = (from, step, at) => {
    let sum = 0;
    for (let k = -1; k <= 1; k++) {
      const j = at + k;
      if (j >= 0 && j < size) sum += SOFT[k + 1] * from[step(j)];
    }
    return sum;
  };
  const rows = values.map((_, i) => along(values, (j) => i - (i % size) + j, i % size));
  return rows.map((_, i) => Math.min(255, GAIN * along(rows, (j) => j * size + (i % size), Math.floor(i / size))));
}

/** Centre of mass in pixels, the middle of the first one being at 0.5; null of black. */
export function centreOfMass(values, width) {
  let mass = 0;
  let x = 0;
  let y = 0;
  values.forEach((value, i) => {
    mass += value;
    x += value * ((i % width) + 0.5);
    y += value * (Math.floor(i / width) + 0.5);
  });
  return mass > 0 ? { x: x / mass, y: y / mass } : null;
}

/** Where the lines are that no eraser has taken away, 0 to 1 over the pad; null if there are none. */
function boundingBox(strokes) {
  if (!strokes.some((stroke) => stroke.erase)) return boxOfPoints(strokes);
  const context = blackboard(FINE, FINE);
  paintStrokes(context, strokes, { scaleX: FINE, scaleY: FINE, shiftX: 0, shiftY: 0, pen: 1.5 });
  const left = [];
  grey(context, FINE, FINE).forEach((value, i) => {
    if (value > 80) left.push(((i % FINE) + 0.5) / FINE, (Math.floor(i / FINE) + 0.5) / FINE);
  });
  return left.length ? boxOfPoints([{ erase: false, points: left }]) : null;
}

export function boxOfPoints(strokes) {
  const box = { left: Infinity, right: -Infinity, top: Infinity, bottom: -Infinity };
  for (const { erase, points } of strokes) {
    if (erase) continue;
    for (let i = 0; i < points.length; i += 2) {
      box.left = Math.min(box.left, points[i]);
      box.right = Math.max(box.right, points[i]);
      box.top = Math.min(box.top, points[i + 1]);
      box.bottom = Math.max(box.bottom, points[i + 1]);
    }
  }
  return box.left === Infinity ? null : box;
}

/**
 * Strokes as a digit of 28 x 28.
 * @param {Stroke[]} strokes
 * @param {number} side of the model's picture in pixels: how large a pixel is on the pad
 * @returns {?{pixels: Float32Array, x: number, y: number}} the digit, and where on the pad (0 to 1) its middle was
 */
export function normalisedDigit(strokes, side) {
  const box = boundingBox(strokes);
  if (!box) return null;
  const longer = Math.max(box.right - box.left, box.bottom - box.top) * side;
  const scale = side * Math.min(LARGEST_SCALE, (LONGER_SIDE - PEN) / Math.max(longer, 1e-6));
  const draw = (shiftX, shiftY) => {
    const context = blackboard(DIGIT, DIGIT);
    paintStrokes(context, strokes, { scaleX: scale, scaleY: scale, shiftX, shiftY, pen: PEN });
    return grey(context, DIGIT, DIGIT);
  };
  const shiftX = DIGIT / 2 - (scale * (box.left + box.right)) / 2;
  const shiftY = DIGIT / 2 - (scale * (box.top + box.bottom)) / 2;
  const mass = centreOfMass(draw(shiftX, shiftY), DIGIT);
  if (!mass) return null;
  const pixels = softened(draw(shiftX + MIDDLE - mass.x, shiftY + MIDDLE - mass.y), DIGIT);
  return { pixels, x: (mass.x - shiftX) / scale, y: (mass.y - shiftY) / scale };
}

const within = (value) => Math.max(-FARTHEST, Math.min(FARTHEST, Math.round(value)));

/** A digit put into a larger picture, as near to where it was drawn as the data have it. */
function placed(digit, { height, width }) {
  const left = (width - DIGIT) / 2 + within(digit.x * width - width / 2);
  const top = (height - DIGIT) / 2 + within(digit.y * height - height / 2);
  const pixels = new Uint8Array(height * width);
  digit.pixels.forEach((value, i) => {
    const column = Math.round(left) + (i % DIGIT);
    const row = Math.round(top) + Math.floor(i / DIGIT);
    if (row >= 0 && row < height && column >= 0 && column < width) pixels[row * width + column] = Math.round(value);
  });
  return pixels;
}

/** A layer as it stands on the pad: strokes on a picture, or on black. */
function asDrawn(layer, model) {
  const { channels, height, width } = model.picture;
  const context = blackboard(width, height);
  if (layer.base) context.putImageData(toImageData(layer.base, model.picture), 0, 0);
  const pen = model.digits ? PEN : (PEN * Math.min(width, height)) / DIGIT;
  paintStrokes(context, layer.strokes, { scaleX: width, scaleY: height, shiftX: 0, shiftY: 0, pen });
  const { data } = context.getImageData(0, 0, width, height);
  const pixels = new Uint8Array(count(model.picture));
  for (let i = 0; i < width * height; i++) {
    for (let k = 0; k < channels; k++) pixels[i * channels + k] = data[4 * i + Math.min(k, 2)];
  }
  return pixels;
}

/** @param {Layer} layer @param {Model} model @returns {Uint8Array} */
export function layerPixels(layer, model) {
  if (layer.base && layer.strokes.length === 0) return layer.base;
  const { height, width } = model.picture;
  if (layer.base || !model.digits || model.picture.channels !== 1) return asDrawn(layer, model);
  const digit = normalisedDigit(layer.strokes, width);
  if (!digit) return new Uint8Array(count(model.picture));
  if (model.objects === 1) Object.assign(digit, { x: 0.5, y: 0.5 });
  return placed(digit, { height, width });
}

/** All layers together, too bright pixels clipped. @returns {Uint8Array} */
export function picturePixels(layers, model) {
  const sum = new Uint8ClampedArray(count(model.picture));
  for (const layer of layers) layerPixels(layer, model).forEach((value, i) => (sum[i] += value));
  return new Uint8Array(sum.buffer);
}

/** A picture moved by whole pixels. */
export function shifted(pixels, { channels, height, width }, right, down) {
  const moved = new Uint8Array(pixels.length);
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      const from = [row - down, column - right];
      if (from[0] < 0 || from[0] >= height || from[1] < 0 || from[1] >= width) continue;
      for (let k = 0; k < channels; k++) {
        moved[(row * width + column) * channels + k] = pixels[(from[0] * width + from[1]) * channels + k];
      }
    }
  }
  return moved;
}

/** How far a digit's middle is from the picture's, in pixels; null of black. */
function offset(pixels, { height, width }) {
  const mass = centreOfMass(pixels, width);
  const own = MIDDLE - DIGIT / 2; // of a digit in its own box
  return mass && { x: mass.x - own - width / 2, y: mass.y - own - height / 2 };
}

/** As much of a movement as leaves a digit's picture where the data have it. @returns {[number, number]} pixels */
export function allowedShift(pixels, shape, right, down) {
  const now = offset(pixels, shape);
  return now ? [within(now.x + right) - within(now.x), within(now.y + down) - within(now.y)] : [0, 0];
}

/** As much of a movement as leaves what was drawn on the pad. @returns {[number, number]} pixels */
export function allowedStrokeShift(strokes, { height, width }, right, down) {
  const box = boxOfPoints(strokes);
  if (!box) return [0, 0];
  const within = (by, least, most) => Math.max(Math.min(0, -least), Math.min(Math.max(0, 1 - most), by));
  return [within(right / width, box.left, box.right) * width, within(down / height, box.top, box.bottom) * height];
}

/** Moves a digit's picture so that its middle is where asked (in pixels), as far as the data have it. */
export function movedTo(pixels, shape, x, y) {
  const now = offset(pixels, shape);
  if (!now) return pixels;
  const by = allowedShift(pixels, shape, x - shape.width / 2 - now.x, y - shape.height / 2 - now.y);
  return shifted(pixels, shape, ...by);
}
