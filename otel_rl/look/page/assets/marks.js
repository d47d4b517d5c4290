// Marks of runs: a dialog for the name, tags and notes of one run, or the tags of several, and for their deletion.

import {make} from "./dom.js";
import {ask, send} from "./net.js";
import {wholeText} from "./numbers.js";

/** Open the dialog for runs, `{key, name}`; `done()` is called when something was changed. */
export async function changeMarks(runs, done) {
  const one = runs.length === 1 ? await ask(`run/${runs[0].key}/marks`) : null;
  const title = one ? `Marks of ${one.name}` : `Marks of ${wholeText(runs.length)} runs`;
  const {dialog, problem, close} = opened(title);
  const {fields, change} = one ? fieldsOfOne(one) : fieldsOfSeveral();
  const submit = act(problem, async () => {
    for (const {key} of runs) await send(`run/${key}/marks`, change());
    close();
  }, done);
  const buttons = make("p", {class: "buttons"}, make("button", {type: "submit"}, "Save"), make("button", {type: "button", onclick: close}, "Cancel"), make("button", {type: "button", class: "bad", onclick: () => {
    close();
    askToDelete(runs, done);
  }}, "Delete …"));
  dialog.append(make("form", {onsubmit: submit}, ...fields, problem, buttons));
}

function fieldsOfOne({first_name: first, marks}) {
  const name = field("Name", make("input", {type: "text", placeholder: first, maxlength: "200"}), marks.name ?? "");
  const tags = field("Tags", make("input", {type: "text", placeholder: "good, candidate"}), (marks.tags ?? []).join(", "));
  const notes = field("Notes", make("textarea", {rows: "5", maxlength: "10000"}), marks.notes ?? "");
  const baseline = check("Baseline: others are compared with it", marks.baseline), archived = check("Archived: lists leave it out", marks.archived);
  const change = () => {
    const now = words(tags.input.value), before = marks.tags ?? [];
    return {name: name.input.value, notes: notes.input.value, add: now, remove: before.filter((tag) => !now.includes(tag)), baseline: baseline.input.checked, archived: archived.input.checked};
  };
  return {fields: [name, tags, notes, baseline, archived].map(({label}) => label), change};
}

function fieldsOfSeveral() {
  const add = field("Tags to add", make("input", {type: "text"})), remove = field("Tags to remove", make("input", {type: "text"}));
  const archived = field("In lists", make("select", {}, make("option", {value: ""}, "as before"), make("option", {value: "true"}, "archived"), make("option", {value: "false"}, "shown")));
  const change = () => ({add: words(add.input.value), remove: words(remove.input.value), archived: archived.input.value ? archived.input.value === "true" : null});
  return {fields: [add, remove, archived].map(({label}) => label), change};
}

/** Ask whether runs are deleted, with what is in each; those that are refused stay. */
async function askToDelete(runs, done) {
  const {dialog, problem, close} = opened(runs.length === 1 ? "Delete a run" : `Delete ${wholeText(runs.length)} runs`);
  const reading = make("p", {class: "note", role: "status"}, "Looking at what is in them …");
  dialog.append(reading);
  const known = await Promise.all(runs.map(async (run) => ({...run, ...(await ask(`run/${run.key}/content`).catch((error) => ({refused: error.message})))})));
  const some = known.filter(({refused}) => !refused);
  const lines = known.map(({name, title, described, refused}) => make("li", {}, make("b", {}, title || name), ` ${refused ? `stays: ${refused}` : described}`));
  const remove = make("button", {type: "button", class: "bad", disabled: !some.length, onclick: act(problem, async () => {
    for (const {key} of some) await send(`run/${key}/marks`, {delete: true});
    close();
  }, done)}, some.length === 1 ? "Delete 1 run" : `Delete ${wholeText(some.length)} runs`);
  reading.replaceWith(make("ul", {}, ...lines), make("p", {}, "What is deleted does not come back. Runs in trackers stay."), problem, make("p", {class: "buttons"}, remove, make("button", {type: "button", onclick: close}, "Cancel")));
}

function opened(title) {
  const problem = make("p", {class: "note bad", role: "alert"});
  const dialog = make("dialog", {class: "marks", "aria-label": title, onclose: () => dialog.remove()}, make("h2", {}, title));
  document.body.append(dialog);
  dialog.showModal();
  return {dialog, problem, close: () => dialog.close()};
}

/** A handler that does something, says why it could not, and calls `done()` in both cases: some runs may be changed. */
function act(problem, change, done) {
  return async (event) => {
    event.preventDefault();
    try {
      await change();
    } catch (error) {
      problem.textContent = error.message;
    }
    done();
  };
}

function field(text, input, value = "") {
  if (value) input.value = value;
  return {input, label: make("label", {class: "field"}, make("span", {}, text), input)};
}

function check(text, isOn = false) {
  const input = make("input", {type: "checkbox"});
  input.checked = Boolean(isOn);
  return {input, label: make("label", {class: "check"}, input, ` ${text}`)};
}

function words(text) {
  return text.split(/[\s,]+/).filter(Boolean);
}
