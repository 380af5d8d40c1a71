// Colours of classes and layers. Class colours are custom properties (--class-0, …) with a value for each theme, so a
// change of theme needs no redrawing.

const TEN = [
  ["#2563c9", "#79aeff"],
  ["#b85a00", "#ffab5c"],
  ["#22803a", "#63d485"],
  ["#c92f2b", "#ff8078"],
  ["#7a45cc", "#bba2ff"],
  ["#875636", "#d0a482"],
  ["#c23285", "#ff93ca"],
  ["#0a7f8b", "#52d3db"],
  ["#7a6f00", "#e0cf55"],
  ["#16181c", "#f4f6f9"], // not a grey: that is what an undecided part wears
];

/** More classes than ten: hues by the golden angle, in two shades. */
function generated(index) {
  const hue = Math.round((index * 137.508 + 20) % 360);
  const odd = index % 2;
  return [`hsl(${hue} 62% ${odd ? 30 : 38}%)`, `hsl(${hue} 70% ${odd ? 66 : 76}%)`];
}

const pair = (index, classes) => (classes <= TEN.length ? TEN[index] : generated(index));

/** The colour of a class in the theme that is shown now; for canvases, which know no custom properties. */
export const classColour = (index, classes) => pair(index, classes)[isDark() ? 1 : 0];

export function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
}

export function setClassColours(classes) {
  for (let k = 0; k < classes; k++) {
    const [light, dark] = pair(k, classes);
    document.documentElement.style.setProperty(`--class-${k}`, `light-dark(${light}, ${dark})`);
  }
}

/** Pens and reconstructions of several objects: two lights that add up to almost white. */
const LAYER_TINTS = [
  [255, 122, 66],
  [70, 178, 255],
  [120, 230, 120],
];

export const layerTint = (layer) => LAYER_TINTS[layer % LAYER_TINTS.length];
export const css = (tint) => `rgb(${tint.join(" ")})`;
