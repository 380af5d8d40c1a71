// Images of one's own: chosen, dropped on the pad, or pasted.

/**
 * @param {{input: HTMLInputElement, invert: HTMLSelectElement, centre: HTMLInputElement, target: HTMLElement}} controls
 * @param {(file: Blob, invert: string, centre: boolean, time: number) => void} send
 * @param {(sentence: string) => void} complain
 */
export function acceptImages({ input, invert, centre, target }, send, complain) {
  let last = null;

  const give = (file, time) => {
    if (!file) return;
    if (file.type && !file.type.startsWith("image/")) {
      complain(`“${file.name}” is not an image.`);
      return;
    }
    last = file;
    send(file, invert.value, centre.checked, time);
  };

  input.addEventListener("change", (event) => {
    give(input.files[0], event.timeStamp);
    input.value = ""; // so that the same file can be chosen again
  });

  // another way of reading the image that is there already
  const again = (event) => give(last, event.timeStamp);
  invert.addEventListener("change", again);
  centre.addEventListener("change", again);

  const hasFile = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  // anywhere, because a file that misses the pad would otherwise replace the page
  addEventListener("dragover", (event) => {
    if (!hasFile(event)) return;
    event.preventDefault();
    target.classList.toggle("target", event.target === target);
  });
  addEventListener("dragleave", () => target.classList.remove("target"));
  addEventListener("drop", (event) => {
    if (!hasFile(event)) return;
    event.preventDefault();
    target.classList.remove("target");
    give(event.dataTransfer.files[0], event.timeStamp);
  });
  addEventListener("paste", (event) => {
    const item = [...(event.clipboardData?.items ?? [])].find((each) => each.type.startsWith("image/"));
    if (item) give(item.getAsFile(), event.timeStamp);
  });

  return { forget: () => (last = null) };
}
