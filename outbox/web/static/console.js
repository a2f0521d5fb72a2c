// The console's behaviour: live refresh that keeps selection and focus, shortcuts, theme, copying.
// Every page reads without it; it makes no request of its own but the refresh that htmx sends.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const $ = (selector, from) => (from || document).querySelector(selector);
  const $$ = (selector, from) => Array.from((from || document).querySelectorAll(selector));
  const store = {
    get: (key) => { try { return localStorage.getItem(key); } catch { return null; } },
    set: (key, value) => { try { localStorage.setItem(key, value); } catch { /* private window */ } },
  };

  // What a person has ticked, opened or typed is theirs: a refresh leaves it alone.
  const theirs = (name, node) =>
    (name === "checked" && node.type === "checkbox") || (name === "open" && /^(DETAILS|DIALOG)$/.test(node.nodeName)) ||
    (name === "value" && /^(INPUT|TEXTAREA|SELECT)$/.test(node.nodeName)) || (name === "aria-selected");
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) => !theirs(name, node);
  Idiomorph.defaults.ignoreActiveValue = true;

  // Live refresh
  let paused = store.get("outbox.paused") === "yes";
  let fresh = Date.now();
  let failing = false;
  const live = () => $("#live");
  const seconds = () => Number(live()?.dataset.every || 0);
  const busy = () => document.hidden || $("dialog[open]") || window.getSelection()?.type === "Range";
  const refresh = () => { if (live()) htmx.trigger(document.body, "outbox:refresh"); };

  function showLive() {
    const button = $("#live-toggle");
    if (!button) return;
    button.hidden = !seconds();
    button.setAttribute("aria-pressed", String(paused));
    $(".label", button).textContent = paused ? "Paused" : "Live";
    button.title = paused ? "Refreshing is paused (p)" : `Refreshes every ${seconds()} s (p pauses)`;
  }
  function showStale() {
    const old = Math.round((Date.now() - fresh) / 1000);
    const banner = $("#stale");
    const due = failing && seconds() > 0;
    banner.hidden = !due;
    root.classList.toggle("stale-now", due);
    if (due) $("#stale-age").textContent = `What you see is ${old} s old.`;
  }
  function pause(now) { paused = now; store.set("outbox.paused", now ? "yes" : "no"); showLive(); if (!now) refresh(); }

  document.addEventListener("htmx:afterRequest", (event) => {
    failing = !event.detail.successful;
    if (!failing) fresh = Date.now();
    showStale();
  });
  // An error page must not replace the last good one; the banner says that it is old.
  document.addEventListener("htmx:beforeSwap", (event) => { if (event.detail.xhr.status >= 400) event.detail.shouldSwap = false; });
  document.addEventListener("htmx:afterSettle", () => { restore(); tell(); });
  setInterval(() => {
    showStale();
    if (seconds() && !paused && !busy() && Date.now() - fresh >= seconds() * 1000) {
      if (failing && Math.random() > 0.34) return;
      fresh = failing ? fresh : Date.now();
      refresh();
    }
  }, 1000);

  // Selection, kept over pages of the same list
  const form = () => $("form[data-select]");
  const key = () => `outbox.selected.${form().dataset.select}`;
  const kept = () => { try { return new Set(JSON.parse(sessionStorage.getItem(key()) || "[]")); } catch { return new Set(); } };
  const keep = (ids) => { try { sessionStorage.setItem(key(), JSON.stringify([...ids])); } catch { /* full */ } };
  const boxes = () => $$('input[name="ids"][type="checkbox"]', form());

  function restore() {
    if (!form()) return;
    const ids = kept();
    for (const box of boxes()) {
      box.checked = ids.has(box.value);
      box.closest("tr")?.setAttribute("aria-selected", String(box.checked));
    }
  }
  function tell() {
    if (!form()) return;
    const ids = kept();
    const most = Number(form().dataset.most || 500);
    for (const place of $$("[data-selected]", form())) place.textContent = ids.size.toLocaleString("en");
    for (const button of $$("[data-needs-selection]", form())) {
      button.disabled = ids.size === 0 || ids.size > most;
      button.textContent = button.dataset.needsSelection.replace("{n}", `${ids.size} selected`);
    }
    const page = $("#select-page");
    if (page) {
      const here = boxes();
      page.checked = here.length > 0 && here.every((box) => box.checked);
      page.indeterminate = !page.checked && here.some((box) => box.checked);
    }
    const clear = $("#clear-selection");
    if (clear) clear.hidden = ids.size === 0;
  }
  function tick(box, on) {
    const ids = kept();
    if (on) ids.add(box.value); else ids.delete(box.value);
    box.checked = on;
    box.closest("tr")?.setAttribute("aria-selected", String(on));
    keep(ids);
  }
  document.addEventListener("change", (event) => {
    const box = event.target;
    if (box.id === "select-page") boxes().forEach((each) => tick(each, box.checked));
    else if (box.name === "ids" && box.type === "checkbox" && form()?.contains(box)) tick(box, box.checked);
    else if (box.dataset.submit !== undefined) { box.form.requestSubmit(); return; }
    tell();
  });
  document.addEventListener("submit", (event) => {
    const sent = event.target;
    if (sent.dataset.select === undefined) return;
    const here = new Set(boxes().map((box) => box.value));
    for (const id of kept()) {
      if (here.has(id)) continue;
      const extra = document.createElement("input");
      extra.type = "hidden"; extra.name = "ids"; extra.value = id;
      sent.append(extra);
    }
  });
  if ($("[data-forget-selection]")) {
    for (const name of Object.keys(sessionStorage)) if (name.startsWith("outbox.selected.")) sessionStorage.removeItem(name);
  }

  // Clicks
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.id === "live-toggle") pause(!paused);
    if (button.id === "theme-toggle") theme();
    if (button.id === "help-open") $("#help").showModal();
    if (button.id === "help-close") $("#help").close();
    if (button.id === "clear-selection") { keep(new Set()); restore(); tell(); }
    if (button.dataset.copy !== undefined) copy(button);
  });
  function copy(button) {
    const text = $(`#${button.dataset.copy}`).textContent;
    const done = () => { button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1500); };
    // The clipboard API is absent over plain HTTP: then the text is selected for the person to copy.
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(done);
    else window.getSelection().selectAllChildren($(`#${button.dataset.copy}`));
  }
  function theme() {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    document.cookie = `outbox_theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
  }

  // Shortcuts
  const places = { o: "overview", f: "failures", e: "events", r: "replays", i: "index", a: "audit", w: "webhooks", s: "system" };
  let leader = 0;
  const rows = () => $$("tr[data-href]");
  function move(step) {
    const all = rows();
    const at = all.findIndex((row) => row.classList.contains("current"));
    const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
    if (!next) return;
    all.forEach((row) => row.classList.remove("current"));
    next.classList.add("current");
    $("a, input", next)?.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  }
  const acts = {
    "?": () => $("#help").showModal(),
    "/": () => { const box = $("details.filter-box"); if (box) box.open = true; $("[data-first-filter]")?.focus(); },
    p: () => pause(!paused), r: refresh, t: theme, j: () => move(1), k: () => move(-1),
    x: () => { const box = $('tr.current input[name="ids"]'); if (box) { tick(box, !box.checked); tell(); } },
    Enter: () => { const row = $("tr.current"); if (row && !document.activeElement.closest("a, button")) location.href = row.dataset.href; },
  };
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=checkbox]), textarea, select");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]")) return;
    if (leader && Date.now() - leader < 1200 && places[event.key]) {
      leader = 0; event.preventDefault();
      $(`a[data-place="${places[event.key]}"]`)?.click();
    } else if (event.key === "g") { leader = Date.now(); }
    else if (acts[event.key]) {
      if (event.key !== "Enter") event.preventDefault();
      acts[event.key]();
    }
  });

  restore(); tell(); showLive();
})();
