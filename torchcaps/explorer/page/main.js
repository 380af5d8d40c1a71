// The page as a whole: which model, which picture, and who hears about a change.

import { showAbout } from "./about.js";
import { Address } from "./address.js";
import { Answer } from "./answer.js";
import * as api from "./api.js";
import { setClassColours } from "./colours.js";
import { reporter } from "./connection.js";
import { connectControls } from "./controls.js";
import { savePicture } from "./export.js";
import { showLayers } from "./layers.js";
import { say } from "./message.js";
import { Pad } from "./pad.js";
import { count, fromBase64, paint, toBase64 } from "./pictures.js";
import { Pose } from "./pose.js";
import { RoutingPanel } from "./routing.js";
import { markSample, sampleLayers, sampleTexts, showDigits, showSamples } from "./samples.js";
import { Sketch } from "./sketch.js";
import { measureToFrame } from "./timing.js";
import { acceptImages } from "./upload.js";

const element = (id) => document.getElementById(id);

const state = {
  /** @type {api.Model[]} */
  models: [],
  /** @type {?api.Model} */
  model: null,
  /** @type {api.Sample[]} */
  samples: [],
  /** @type {?Sketch} */
  sketch: null,
  /** @type {?api.Look} */
  look: null,
  /** @type {?Uint8Array} that were looked at last */
  pixels: null,
  /** the picture that is on the pad now, as it is sent */
  text: "",
  /** whether the page may choose what it begins with; not if a link said so */
  choosing: true,
  /** @type {?number} the class someone chose; null: the one that was found */
  label: null,
  /** @type {[number, number][]} of a link, until there is a pose to apply them to */
  edits: [],
};

const pad = new Pad(element("pad"), element("pad-hint"));
const answer = new Answer((label) => chooseClass(label));
const pose = new Pose((label, numbers, time, token) => askDecode({ model: state.model, label, numbers, time, token }));
const routing = new RoutingPanel();

/* Asking the server */

const problem = reporter(goOn);

const askLook = api.newestWins(
  ({ model, text }) => api.look(model, text),
  (look, question, last) => showLook(look, question, last),
  problem,
);
const askDecode = api.newestWins(
  ({ model, label, numbers }) => api.decode(model, label, numbers),
  (drawing, { time, token }) => {
    if (token !== pose.token) return;
    pose.draw(drawing.pixels);
    measureToFrame("decode", time);
  },
  problem,
);
const askRouting = api.newestWins(
  ({ model, text, steps }) => api.routing(model, text, steps),
  (data, { model, text, steps }) => {
    if (model === state.model && text === state.text && steps === routing.steps) routing.show(data, text);
  },
  problem,
);

/** The server is back. */
function goOn() {
  const { model, sketch, samples } = state;
  if (!sketch) {
    start();
    return;
  }
  pose.stop();
  if (model.samples > 0 && !samples.length) loadSamples(model, sketch);
  // the same pose comes again, without what was changed by hand
  if (state.look && toBase64(state.pixels) === toBase64(sketch.pixels())) state.edits = pose.edits();
  pictureChanged(true, 0);
}

/* Changes */

function pictureChanged(final, time) {
  const { model, sketch } = state;
  const pixels = sketch.pixels();
  state.text = toBase64(pixels);
  paint(element("seen"), pixels, model.picture);
  element("undo").disabled = sketch.history.length === 0;
  markSample(element("samples"), sketch.sample ?? -1);
  routing.stale(true);
  askLook({ model, sketch, objects: sketch.objects, pixels, text: state.text, final, time });
  if (final) address.later();
}

function showLook(look, { model, sketch, objects, pixels, text, final, time }, last) {
  if (model !== state.model || sketch !== state.sketch) return;
  // Of a single digit on the pad of two, the second that the network always finds is no answer.
  const most = model.multi_label ? model.classes.length : Math.max(1, objects);
  look.besides = look.found.slice(most);
  look.found = look.found.slice(0, most);
  look.drawings = look.drawings.slice(0, look.found.length);
  state.look = look;
  state.pixels = pixels;
  const label = state.label ?? look.found[0] ?? 0;
  answer.show(look, pixels, sketch, label);
  if (final) measureToFrame("look", time);
  showPose();
  if (!final || !last) return;
  if (state.edits.length) {
    pose.applyEdits(state.edits);
    state.edits = [];
  }
  if (look.blank) routing.clear();
  else askRouting({ model, text, steps: routing.steps });
  address.later();
}

function showPose() {
  const { look } = state;
  if (!look) return;
  const label = state.label ?? look.found[0] ?? 0;
  element("pose-class").value = label;
  const drawing = look.drawings.find((each) => each.label === label);
  pose.show(label, look.poses[label], drawing?.pixels);
}

function chooseClass(label) {
  state.label = label;
  state.edits = [];
  answer.choose(label);
  showPose();
  address.later();
}

/* Models and pictures */

async function chooseModel(id, restored = null) {
  const model = state.models.find((each) => each.id === id) ?? state.models[0];
  Object.assign(state, { model, samples: [], look: null, pixels: null });
  Object.assign(state, { label: restored?.label ?? null, edits: restored?.pose ?? [], choosing: !restored?.layers });
  element("model").value = model.id;
  showAbout(model);
  setClassColours(model.classes.length);
  element("pose-class").replaceChildren(...model.classes.map((name, k) => new Option(name, k)));
  const several = model.objects > 1;
  element("layers").hidden = element("digits-box").hidden = !several;
  for (const id of ["samples", "digits"]) element(id).replaceChildren();
  for (const button of element("pens").children) button.hidden = button.dataset.tool === "move" && !several;
  chooseTool("draw");
  const what = several ? `${model.objects === 2 ? "two" : model.objects} digits ` : "a digit ";
  element("pad-hint").textContent = `draw ${model.digits ? what : ""}here`;
  answer.reset(model);
  pose.prepare(model);
  routing.prepare(model, restored ?? {});
  uploads.forget();
  element("upload-invert").parentElement.hidden = model.picture.channels !== 1; // colours stay as they are
  element("upload-centre").parentElement.hidden = !model.digits;

  const sketch = new Sketch(model);
  state.sketch = sketch;
  sketch.addEventListener("change", ({ detail }) => {
    if (state.sketch !== sketch) return;
    uploads.forget();
    forgetChoice();
    pictureChanged(detail.final, detail.time);
  });
  showLayers(element("layers"), sketch);
  pad.show(sketch);
  paint(element("seen"), new Uint8Array(count(model.picture)), model.picture);
  if (restored?.layers) sketch.load(restored.layers, { whole: restored.whole });
  await loadSamples(model, sketch);
}

/** A new picture is about what is in it, not about the class that was looked at before. */
function forgetChoice() {
  if (state.look) {
    state.label = null;
    state.edits = [];
  }
}

async function loadSamples(model, sketch) {
  let samples = [];
  try {
    if (model.samples > 0) samples = await api.samples(model);
  } catch (error) {
    problem(error);
  }
  if (model !== state.model || sketch !== state.sketch) return;
  state.samples = samples;
  element("samples-box").hidden = samples.length === 0;
  showSamples(element("samples"), samples, model, showSample);
  if (model.objects > 1) {
    showDigits(element("digits"), samples, model, pad, (pixels, at, time) => sketch.put(pixels, at, time));
    element("digits-box").hidden = element("digits").childElementCount === 0;
  }
  recogniseSample(samples, model, sketch);
  // A page with something on it says more than an empty one.
  if (!state.choosing || !sketch.empty || sketch.history.length) markSample(element("samples"), sketch.sample ?? -1);
  else if (samples.length) showSample(0, 0, true);
  else pictureChanged(true, 0);
}

/** A link holds pixels only; if they are those of a test picture, its label is known. */
function recogniseSample(samples, model, sketch) {
  const held = JSON.stringify(sketch.layers.map(({ base, strokes }) => [base && toBase64(base), strokes.length]));
  const index = samples.findIndex((sample) => held === JSON.stringify(sampleTexts(sample, model)));
  if (index < 0 || sketch.labels) return;
  Object.assign(sketch, { labels: samples[index].labels, sample: index });
  if (state.look) answer.show(state.look, state.pixels, sketch, state.label ?? state.look.found[0] ?? 0);
}

function showSample(index, time, temporary = false) {
  const sample = state.samples[index];
  const layers = sampleLayers(sample, state.model);
  const whole = layers.length < state.model.objects;
  state.sketch.load(layers, { labels: sample.labels, sample: index, temporary, whole, time });
}

function anotherSample(event) {
  const { samples, sketch } = state;
  if (!samples.length) return;
  let index = Math.floor(Math.random() * samples.length);
  if (index === sketch.sample) index = (index + 1) % samples.length;
  showSample(index, event.timeStamp);
}

function chooseTool(tool) {
  pad.tool = tool;
  pad.canvas.dataset.tool = tool;
  for (const button of element("pens").children) button.setAttribute("aria-pressed", button.dataset.tool === tool);
}

const uploads = acceptImages(
  { input: element("upload"), invert: element("upload-invert"), centre: element("upload-centre"), target: pad.canvas },
  async (file, { invert, centre }) => {
    if (!state.model) return null;
    try {
      return fromBase64((await api.upload(state.model, file, invert, centre)).pixels);
    } catch (error) {
      problem(error);
      return null;
    }
  },
  (pixels, { centre, again, time }) => {
    const { model, sketch } = state;
    if (again) sketch.takeBack();
    // One digit of several goes where a drawn one would; anything else is the whole picture.
    if (model.objects > 1 && model.digits && centre) sketch.put(pixels, null, time);
    else sketch.load([{ base: pixels, strokes: [] }], { whole: true, time });
  },
  say,
);

/* The address */

const address = new Address(() => {
  const { model, sketch, label } = state;
  if (!sketch || !state.look) return null;
  const edits = state.edits.length ? state.edits : pose.edits();
  const { step, steps, measure, pin } = routing;
  const { layers, whole } = sketch;
  return { model: model.id, layers, whole, label, pose: edits, step, steps, measure, watched: pin.parent };
});

routing.addEventListener("steps", () => {
  const { model, look, text } = state;
  if (look && !look.blank) askRouting({ model, text, steps: routing.steps });
});

connectControls({
  pad, pose, routing, address, chooseModel, chooseClass, chooseTool, anotherSample,
  sketch: () => state.sketch,
  several: () => (state.model?.objects ?? 1) > 1,
  save: () => state.look && savePicture({ ...state, pose, routing }).catch(problem),
});

addEventListener("hashchange", async (event) => {
  // not the address of now: the page may have written to it before this was heard
  const restored = await address.read(state.models, new URL(event.newURL).hash);
  if (state.models.length) await chooseModel(restored?.model ?? state.model.id, restored);
});

async function start() {
  try {
    state.models = await api.models();
    if (!state.models.length) throw new api.Refused("There is no model to explore.");
    element("model").replaceChildren(...state.models.map((model) => new Option(model.title, model.id)));
    const restored = await address.read(state.models);
    await chooseModel(restored?.model ?? state.models[0].id, restored);
  } catch (error) {
    problem(error);
  }
}

start();
