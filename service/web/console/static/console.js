// Makes the pages live: they work without it. `main[data-live=SECONDS]` is fetched again and swapped in place, unless
// somebody is in the middle of something there.
"use strict";

const PARTS = ["#main", "#banner"];
let wanted = true;
let busy = false;

const main = () => document.querySelector("#main");

function occupied() {
  const page = main();
  const selection = getSelection();
  return document.hidden
    || page.contains(document.activeElement?.closest("form, details"))
    || page.querySelector("details[open], input[type=checkbox]:checked:not([data-calm])")
    || document.querySelector("#banner details[open]")
    || (!selection.isCollapsed && page.contains(selection.anchorNode));
}

async function refresh() {
  if (busy || !wanted || occupied()) return;
  busy = true;
  try {
    const answer = await fetch(location.href, { credentials: "same-origin", headers: { accept: "text/html" } });
    if (answer.redirected) return location.reload();
    if (answer.ok) swap(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    // The service is away for a moment; the next look finds it.
  } finally {
    busy = false;
  }
}

function swap(fresh) {
  if (occupied()) return;
  const focused = main().contains(document.activeElement) ? pathOf(document.activeElement) : null;
  for (const part of PARTS) {
    const [old, next] = [document.querySelector(part), fresh.querySelector(part)];
    if (old && next && old.innerHTML !== next.innerHTML) old.replaceChildren(...next.childNodes);
  }
  addToggle();
  if (focused) main().querySelector(focused)?.focus({ preventScroll: true });
}

// A link that has the focus is found again by its address.
function pathOf(element) {
  const href = element.getAttribute("href");
  return href ? `a[href="${CSS.escape(href)}"]` : null;
}

// What updates by itself can be stopped.
function addToggle() {
  const head = main()?.querySelector("header.head");
  if (!head || !main().dataset.live || head.querySelector(".pulse")) return;
  const toggle = document.createElement("button");
  toggle.type = "button";
  toggle.className = "pulse";
  const tell = () => {
    toggle.setAttribute("aria-pressed", String(wanted));
    toggle.textContent = wanted ? "Live" : "Stopped";
    toggle.title = wanted ? "This page updates itself; press to stop that" : "Press to have this page update itself";
  };
  toggle.addEventListener("click", () => {
    wanted = !wanted;
    tell();
  });
  tell();
  head.firstElementChild.after(toggle);
}

// A second click on the same button does nothing; the server would not either.
document.addEventListener("submit", (event) => {
  if (event.target.method !== "post") return;
  setTimeout(() => event.target.querySelectorAll("button").forEach((button) => { button.disabled = true; }));
});
addEventListener("pageshow", (event) => {
  if (event.persisted) document.querySelectorAll("button[disabled]").forEach((button) => { button.disabled = false; });
});

// Escape closes what a button has opened, and gives the focus back to it.
document.addEventListener("keydown", (event) => {
  const open = event.key === "Escape" && (event.target.closest?.("details[open]") ?? document.querySelector("details.steer[open]"));
  if (!open) return;
  open.open = false;
  open.querySelector("summary").focus();
});
// One opened form at a time; the first field is ready to be typed into.
document.addEventListener("toggle", (event) => {
  const opened = event.target;
  if (!opened.matches?.("details.steer") || !opened.open) return;
  document.querySelectorAll("details.steer[open]").forEach((other) => { if (other !== opened) other.open = false; });
  opened.querySelector("form input:not([type=hidden]), form select, form button")?.focus();
}, true);

if (main()?.dataset.live) {
  addToggle();
  setInterval(refresh, Number(main().dataset.live) * 1000);
}
