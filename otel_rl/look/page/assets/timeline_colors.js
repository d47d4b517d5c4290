// Colors of the timeline: those of the page for categories and texts, as numbers for pixels.

/** Return the colors of categories and of everything else, as the style of an element has them now. */
export function timelineColors(element, categories) {
  const probe = document.createElement("span");
  element.append(probe); // resolves light-dark() and variables
  const read = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (text) => {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = text;
    paint.fillRect(0, 0, 1, 1);
    return paint.getImageData(0, 0, 1, 1).data;
  };
  const back = rgb(read("--tl-lane"));
  const classes = categories.map((category) => {
    const color = rgb(read(`--tl-${category}`));
    const isHatched = category === "waiting"; // lines of its color on a pale ground, as everywhere in the report
    const ground = isHatched ? timelineMix(color, back, 0.82) : color;
    return {
      pixel: timelinePixel(ground),
      edge: timelinePixel(timelineMix(color, back, 0.45)),
      hatch: isHatched ? timelinePixel(timelineMix(color, back, 0.25)) : 0,
      ground: isHatched ? `rgb(${ground.join(" ")})` : "",
      text: timelineIsLight(ground) ? "#111" : "#fff",
    };
  });
  const dim = rgb(read("--tl-dim"));
  classes.push({ pixel: timelinePixel(dim), edge: timelinePixel(timelineMix(dim, back, 0.5)), hatch: 0, ground: "", text: read("--tl-faint") });
  const colors = {
    classes,
    text: read("--tl-text"),
    faint: read("--tl-faint"),
    line: read("--tl-line"),
    lane: read("--tl-lane"),
    band: read("--tl-band"),
    back: read("--tl-back"),
    error: read("--tl-error"),
    select: read("--tl-select"),
    font: getComputedStyle(element).fontFamily,
  };
  probe.remove();
  return colors;
}

function timelineMix(color, other, share) {
  return [0, 1, 2].map((n) => Math.round(color[n] * (1 - share) + other[n] * share));
}

function timelinePixel([red, green, blue]) {
  return (255 << 24) | (blue << 16) | (green << 8) | red;
}

/** Return whether dark text on a color has more contrast than light text. */
function timelineIsLight(color) {
  const [red, green, blue] = [...color].map((part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179;
}
