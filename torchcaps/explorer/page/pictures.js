// Pixels: a byte per pixel and channel, rows, columns, channels; to and from base64, and onto canvases.

/** @typedef {import("./api.js").Shape} Shape */

export const count = (shape) => shape.channels * shape.height * shape.width;

/** @returns {Uint8Array} */
export function fromBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

export function toBase64(bytes) {
  let binary = "";
  // in pieces, because a call takes only so many arguments
  for (let i = 0; i < bytes.length; i += 8192) binary += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(binary);
}

/**
 * @param {Uint8Array} pixels
 * @param {Shape} shape
 * @param {number[]} [tint] red, green and blue of a full pixel; white if not given
 */
export function toImageData(pixels, shape, tint = [255, 255, 255]) {
  const { channels, height, width } = shape;
  const image = new ImageData(width, height);
  const { data } = image;
  for (let i = 0, n = width * height; i < n; i++) {
    for (let k = 0; k < 3; k++) {
      data[4 * i + k] = (pixels[i * channels + (channels >= 3 ? k : 0)] * tint[k]) / 255;
    }
    data[4 * i + 3] = 255;
  }
  return image;
}

/** Makes the canvas as large as the picture and paints it; style sheets say how large it looks. */
export function paint(canvas, pixels, shape, tint) {
  if (canvas.width !== shape.width || canvas.height !== shape.height) {
    canvas.width = shape.width;
    canvas.height = shape.height;
  }
  canvas.getContext("2d").putImageData(toImageData(pixels, shape, tint), 0, 0);
}

export function blank(canvas, shape) {
  paint(canvas, new Uint8Array(count(shape)), shape);
}

/** Several pictures in light of different colours, added where they overlap. */
export function paintTogether(canvas, pictures, shape) {
  const sum = new ImageData(shape.width, shape.height);
  for (let i = 3; i < sum.data.length; i += 4) sum.data[i] = 255;
  for (const { pixels, tint } of pictures) {
    const { data } = toImageData(pixels, shape, tint);
    // a clamped array: what is too bright stays at 255
    for (let i = 0; i < data.length; i++) if (i % 4 !== 3) sum.data[i] += data[i];
  }
  canvas.width = shape.width;
  canvas.height = shape.height;
  canvas.getContext("2d").putImageData(sum, 0, 0);
}

export function newCanvas(width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  return canvas;
}

/** A canvas with the picture on it, to be drawn elsewhere. */
export function asCanvas(pixels, shape, tint) {
  const canvas = newCanvas(shape.width, shape.height);
  paint(canvas, pixels, shape, tint);
  return canvas;
}

/** Cosine of two pictures of one size. */
export function similarity(a, b) {
  let dot = 0;
  let aa = 1e-9;
  let bb = 1e-9;
  for (let i = 0; i < a.length; i++) {
    dot += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return dot / Math.sqrt(aa * bb);
}
