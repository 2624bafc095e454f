// Replaces the sections of a page that have changed. The server makes and escapes them: nothing is put together here.
"use strict";

const note = document.getElementById("live");
const events = new EventSource(document.body.dataset.events);

events.addEventListener("open", () => {
  note.textContent = "Penstock. The figures follow the application.";
});

events.addEventListener("error", () => {
  note.textContent = "Penstock. The application does not answer; the figures are old.";
});

events.addEventListener("section", (event) => {
  const { id, html } = JSON.parse(event.data);
  const section = document.getElementById(id);
  if (section === null) {
    location.reload(); // a topology was added
    return;
  }
  const made = document.createElement("template");
  made.innerHTML = html;
  if (made.innerHTML === section.innerHTML) {
    return; // as it was loaded: nothing is to be drawn again
  }
  if (!section.dispatchEvent(new CustomEvent("section", { detail: made.content, cancelable: true }))) {
    return; // another script has drawn it
  }
  const open = new Map([...section.querySelectorAll("details")].map((each) => [title(each), each.open]));
  const held = section.contains(document.activeElement) ? position(section, document.activeElement) : -1;
  const scrolled = [...section.querySelectorAll(BOXES)].map((box) => [box.scrollLeft, box.scrollTop]);
  section.replaceChildren(made.content);
  section.querySelectorAll("details").forEach((each) => { each.open = open.get(title(each)) ?? each.open; });
  section.querySelectorAll(BOXES).forEach((box, number) => box.scrollTo(...(scrolled[number] ?? [0, 0])));
  if (held >= 0) {
    section.querySelectorAll(FOCUSABLE)[held]?.focus({ preventScroll: true });
  }
});

const BOXES = ".wide, figure"; // what scrolls by itself
const FOCUSABLE = "a, summary, button, input, select, [tabindex]";

function title(details) {
  return details.firstElementChild.firstChild.textContent; // without figures, which change
}

function position(section, element) {
  return [...section.querySelectorAll(FOCUSABLE)].indexOf(element);
}
