// A picture of the whole page, drawn by hand on a canvas, to be put on a slide.

import { barsTitle } from "./answer.js";
import { shownClasses } from "./bars.js";
import { classColour, isDark, layerTint } from "./colours.js";
import { asCanvas, newCanvas, paintTogether } from "./pictures.js";
import { names } from "./samples.js";

const SCALE = 2;
const [WIDTH, HEIGHT, EDGE] = [1200, 640, 40];
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif";

const paper = () =>
  isDark()
    ? { page: "#101317", panel: "#181c22", ink: "#e9ebee", soft: "#a3acb8", track: "#2a313b", undecided: "#8f99a7" }
    : { page: "#f6f5f1", panel: "#ffffff", ink: "#1b1f24", soft: "#59616d", track: "#e8e6e0", undecided: "#6b7280" };

function write(context, text, x, y, { size = 16, weight = 400, colour, align = "left", width } = {}) {
  context.font = `${weight} ${size}px ${FONT}`;
  context.textAlign = align;
  context.textBaseline = "alphabetic";
  context.fillStyle = colour;
  context.fillText(text, x, y, width);
}

function rounded(context, x, y, width, height, radius, colour) {
  context.fillStyle = colour;
  context.beginPath();
  context.roundRect(x, y, width, height, radius);
  context.fill();
}

function picture(context, canvas, x, y, side, caption, colours) {
  const scale = side / Math.max(canvas.width, canvas.height);
  context.imageSmoothingEnabled = false;
  context.drawImage(canvas, x, y, canvas.width * scale, canvas.height * scale);
  write(context, caption, x, y + side + 20, { size: 13, colour: colours.soft });
}

function bars(context, { look, model }, x, y, width, height, colours) {
  const classes = shownClasses(look.lengths);
  const row = Math.min(34, height / classes.length);
  const nameWidth = model.classes.some((name) => name.length > 3) ? 96 : 26;
  classes.forEach((label, i) => {
    const top = y + i * row;
    const found = !look.blank && look.found.includes(label);
    const weight = found ? 700 : 400;
    const base = top + row * 0.68;
    write(context, model.classes[label], x, base, { size: 15, weight, colour: colours.ink, width: nameWidth - 8 });
    const track = width - nameWidth - 48;
    rounded(context, x + nameWidth, top + row * 0.28, track, row * 0.44, 4, colours.track);
    context.globalAlpha = found ? 1 : 0.55;
    const length = Math.max(0, Math.min(1, look.lengths[label]));
    rounded(context, x + nameWidth, top + row * 0.28, Math.max(2, track * length), row * 0.44, 4,
      classColour(label, model.classes.length));
    context.globalAlpha = 1;
    const value = look.lengths[label].toFixed(2);
    write(context, value, x + width, base, { size: 14, weight, colour: colours.ink, align: "right" });
  });
}

/** The dots as they are on the page, with the classes that appear among them. */
function field(context, { model, routing }, x, y, side, colours) {
  const { view, points, largest } = routing.layout;
  const scale = side / Math.max(view.width, view.height);
  const place = (point) => [x + (point.x - view.x) * scale, y + (point.y - view.y) * scale];
  context.save();
  context.beginPath();
  context.rect(x, y, view.width * scale, view.height * scale);
  context.clip();
  if (routing.picture) {
    const [left, top] = place({ x: 0, y: 0 });
    const { width, height } = routing.picture;
    context.globalAlpha = 0.22;
    context.imageSmoothingEnabled = true;
    if (!isDark() && model.picture.channels === 1) context.filter = "invert(1)";
    context.drawImage(routing.picture, left, top, width * scale, height * scale);
    context.filter = "none";
  }
  const seen = new Set();
  routing.looks().forEach(({ size, label, decided }, i) => {
    const [cx, cy] = place(points[i]);
    const disc = (colour, alpha) => {
      context.globalAlpha = alpha;
      context.fillStyle = colour;
      context.beginPath();
      context.arc(cx, cy, largest * scale * Math.sqrt(Math.max(size, 0.012)), 0, 2 * Math.PI);
      context.fill();
    };
    disc(colours.undecided, 1);
    if (label === null) return;
    disc(classColour(label, model.classes.length), decided);
    seen.add(label);
  });
  context.restore();
  let at = x;
  for (const label of [...seen].sort((a, b) => a - b).slice(0, 10)) {
    rounded(context, at, y + side + 12, 11, 11, 6, classColour(label, model.classes.length));
    write(context, model.classes[label], at + 15, y + side + 22, { size: 13, colour: colours.soft });
    at += 15 + context.measureText(model.classes[label]).width + 12;
  }
}

/** Of several objects each in the colour of its pen, as on the pad. */
function inputCanvas({ model, pixels, sketch }) {
  if (model.objects === 1) return asCanvas(pixels, model.picture);
  const canvas = newCanvas(model.picture.width, model.picture.height);
  const layers = sketch.layers.map((_, i) => ({ pixels: sketch.layerPixels(i), tint: layerTint(i) }));
  paintTogether(canvas, layers, model.picture);
  return canvas;
}

/** @returns {HTMLCanvasElement} */
export function compose(state) {
  const { model, look, routing } = state;
  const colours = paper();
  const canvas = document.createElement("canvas");
  canvas.width = WIDTH * SCALE;
  canvas.height = HEIGHT * SCALE;
  const context = canvas.getContext("2d");
  context.scale(SCALE, SCALE);
  rounded(context, 0, 0, WIDTH, HEIGHT, 0, colours.page);
  rounded(context, 20, 84, WIDTH - 40, HEIGHT - 124, 14, colours.panel);
  write(context, "torchcaps explorer", EDGE, 54, { size: 24, weight: 650, colour: colours.ink });
  write(context, `${model.title} · ${model.architecture} · ${model.routing} routing × ${model.iterations}`,
    WIDTH - EDGE, 54, { size: 15, colour: colours.soft, align: "right" });

  const prediction = look.blank ? "–" : names(look.found, model);
  write(context, prediction, EDGE, 150, { size: 46, weight: 700, colour: colours.ink, width: 330 });
  picture(context, inputCanvas(state), EDGE, 176, 160, "input", colours);
  if (model.decodes) {
    const shown = (id) => document.getElementById(id);
    picture(context, shown("reconstruction"), EDGE + 180, 176, 160, "redrawn from the capsules", colours);
    const byHand = state.pose.edits().length ? ", changed by hand" : "";
    const caption = `pose of ${model.classes[state.pose.label]}${byHand}`;
    picture(context, shown("pose-picture"), EDGE, 382, 160, caption, colours);
  }
  write(context, barsTitle(model), 430, 120, { size: 15, weight: 600, colour: colours.ink });
  bars(context, state, 430, 136, 310, 420, colours);

  if (routing.data) {
    const step = routing.data.steps[routing.current - 1];
    write(context, `Routing, step ${routing.current} of ${routing.data.steps.length}`, 790, 120,
      { size: 15, weight: 600, colour: colours.ink });
    field(context, state, 790, 138, 370, colours);
    const { label, value } = routing.agreement();
    write(context, `entropy ${step.entropy.toFixed(2)} of ${routing.data.uniform_entropy.toFixed(2)}   ·   ` +
      `agreement ${value.toFixed(2)} for ${model.classes[label]}`, 790, 570, { size: 14, colour: colours.soft });
    write(context, routing.measureInWords(), 790, 590, { size: 13, colour: colours.soft });
  }
  const capsule = model.measure === "length" ? "Length: how sure. Direction:" : "Activation: how sure. Pose:";
  const lesson = `${capsule} how it looks. Routing: parts go where their votes agree.`;
  write(context, lesson, EDGE, HEIGHT - 16, { size: 13, colour: colours.soft });
  return canvas;
}

export async function savePicture(state) {
  const blob = await new Promise((resolve) => compose(state).toBlob(resolve, "image/png"));
  const found = state.look.blank ? "blank" : state.look.found.map((label) => state.model.classes[label]).join("-");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `torchcaps-${state.model.id}-${found}.png`.replace(/[^\w.-]+/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
