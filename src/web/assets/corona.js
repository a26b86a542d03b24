// Keeps a page up to date: fetches it again and takes over the parts that are marked with
// `data-live`. It draws nothing of its own, so a page shows the same with and without it.
//
// A look is due soon after an event of /api/v1/events, where there are any, and every few seconds. Links and
// forms marked with `data-swap` go the same way, without a reload of the page.

"use strict";

(() => {
  const MOST_PAUSE_MS = 5000;
  const NEWS_PAUSE_MS = 5000;
  const COME_BACK_MS = 10000;
  const leastPauseMs = Number(document.body.dataset.refreshMs || 0);
  if (!leastPauseMs || !window.fetch || !window.DOMParser) return;

  const live = document.getElementById("live");
  const toggle = document.getElementById("live-toggle");
  const shownTime = document.getElementById("live-time");
  const news = document.getElementById("live-news");
  let on = true;
  let timer = null;
  let lastLook = Date.now();
  let looking = null;

  // --- Looking

  function schedule(pauseMs) {
    const due = Math.max(lastLook + leastPauseMs, Date.now() + pauseMs);
    if (timer && timer.due <= due) return;
    if (timer) clearTimeout(timer.id);
    const id = setTimeout(() => { timer = null; look(location.href); }, due - Date.now());
    timer = { id, due };
  }

  async function look(address, asked) {
    if (!asked && (!on || document.hidden)) return;
    if (looking) looking.abort();
    const mine = looking = new AbortController();
    try {
      const answer = await fetch(address, { signal: mine.signal, headers: { Accept: "text/html" } });
      if (answer.status >= 500) throw new Error("status " + answer.status);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (looking !== mine) return;
      takeOver(page, asked);
      live.classList.remove("lost");
      shownTime.textContent = "updated " + new Date().toLocaleTimeString();
      // What is over does not change any more.
      if (!page.body.dataset.refreshMs) { on = false; live.hidden = true; stopListening(); }
    } catch (error) {
      if (error.name === "AbortError") return;
      live.classList.add("lost");
      shownTime.textContent = "not reachable, last updated " + new Date(lastLook).toLocaleTimeString();
    } finally {
      if (looking === mine) looking = null;
      lastLook = Date.now();
      if (on) schedule(MOST_PAUSE_MS);
    }
  }

  function takeOver(page, asked) {
    document.title = page.title;
    const parts = document.querySelectorAll("[data-live]");
    const fresh = page.querySelectorAll("[data-live]");
    const same = parts.length === fresh.length
      && [...parts].every((part, at) => part.id === fresh[at].id);
    if (!same) {
      // Another page stands at this address now, such as that of an ended session.
      keepPlace(document.getElementById("main"), page.getElementById("main"));
      return;
    }
    parts.forEach((part, at) => {
      if (!part.isEqualNode(fresh[at])) keepPlace(part, fresh[at]);
    });
    if (asked) takeOverForm(page);
  }

  // Puts new content in, and the focus and the places of what is scrolled back.
  function keepPlace(old, fresh) {
    const active = document.activeElement;
    const focused = old.contains(active) && active !== old ? describe(active, old) : null;
    const scrolled = [...old.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
    old.replaceChildren(...[...fresh.childNodes].map((node) => document.importNode(node, true)));
    old.querySelectorAll(".scroll").forEach((box, at) => { box.scrollLeft = scrolled[at] || 0; });
    if (focused) find(focused, old)?.focus({ preventScroll: true });
  }

  function describe(element, within) {
    const same = [...within.querySelectorAll(element.tagName)];
    return {
      tag: element.tagName,
      id: element.id,
      href: element.getAttribute("href"),
      text: element.textContent.replace(/[▴▾\s]/g, ""),
      at: same.indexOf(element),
    };
  }

  function find(was, within) {
    const same = [...within.querySelectorAll(was.tag)];
    return same.find((element) => was.id && element.id === was.id)
      || same.find((element) => was.href && element.getAttribute("href") === was.href)
      || same.find((element) => was.text && element.textContent.replace(/[▴▾\s]/g, "") === was.text)
      || same[was.at];
  }

  // --- Links and forms that only change what is shown

  function go(address) {
    history.pushState(null, "", address);
    look(address, true);
  }

  // Fields show what was asked for, except the one that somebody is in.
  function takeOverForm(page) {
    const form = document.querySelector("form[data-swap]");
    const fresh = page.querySelector("form[data-swap]");
    if (!form || !fresh) return;
    for (const field of fresh.elements) {
      const own = field.name && form.elements[field.name];
      if (!own || own === document.activeElement) continue;
      if (field.type === "checkbox") own.checked = field.checked;
      else own.value = field.value;
    }
  }

  function addressOf(form) {
    const filled = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value) filled.append(name, value);
    const sort = new URLSearchParams(location.search).get("sort");
    if (sort) filled.set("sort", sort);
    const query = filled.toString();
    return form.getAttribute("action") + (query ? "?" + query : "");
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-swap]");
    const plain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
    if (!link || !plain) return;
    event.preventDefault();
    go(link.getAttribute("href"));
  });
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-swap]")) return;
    event.preventDefault();
    go(addressOf(event.target));
  });
  let typing = null;
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-swap]");
    if (!form) return;
    clearTimeout(typing);
    typing = setTimeout(() => {
      const address = addressOf(form);
      history.replaceState(null, "", address);
      look(address, true);
    }, event.target.matches("input[type=text], input[type=search]") ? 300 : 0);
  });
  window.addEventListener("popstate", () => look(location.href, true));

  // --- Events

  let source = null;
  let comeBack = null;
  const heard = new Map();

  // What is read out, for those who do not see the page change. Grants are too many for that.
  const SENTENCES = {
    session_started: ["session started", "sessions started"],
    session_ended: ["session ended", "sessions ended"],
    node_added: ["node came", "nodes came"],
    node_lost: ["node was lost", "nodes were lost"],
    node_blacklisted: ["node was blacklisted", "nodes were blacklisted"],
    pool_starving: ["pool starves", "pools starve"],
    safe_mode: ["switch of safe mode", "switches of safe mode"],
    configuration_reloaded: ["change of the configuration", "changes of the configuration"],
  };
  const QUIET = ["session_granted", "session_revoked", "missed"];

  function listen() {
    if (source || !window.EventSource || document.body.dataset.events === "none") return;
    source = new EventSource("/api/v1/events");
    for (const name of [...Object.keys(SENTENCES), ...QUIET]) {
      source.addEventListener(name, () => {
        if (SENTENCES[name]) heard.set(name, (heard.get(name) || 0) + 1);
        schedule(0);
      });
    }
    source.onerror = () => {
      // A refusal is final for the browser; looks go on without events meanwhile.
      if (source && source.readyState === EventSource.CLOSED) {
        stopListening();
        comeBack = setTimeout(listen, COME_BACK_MS);
      }
    };
  }

  function stopListening() {
    clearTimeout(comeBack);
    if (source) source.close();
    source = null;
  }

  setInterval(() => {
    if (!heard.size || !on) return;
    const parts = [...heard].map(([name, count]) => count + " " + SENTENCES[name][count === 1 ? 0 : 1]);
    heard.clear();
    news.textContent = parts.join(", ");
  }, NEWS_PAUSE_MS);

  // --- On and off

  function resume() {
    if (!on || document.hidden) return stopListening();
    listen();
    schedule(0);
  }

  toggle.addEventListener("click", () => {
    on = !on;
    toggle.setAttribute("aria-pressed", String(on));
    toggle.textContent = on ? "Live" : "Paused";
    if (timer) clearTimeout(timer.id);
    timer = null;
    resume();
  });
  document.addEventListener("visibilitychange", resume);
  window.addEventListener("pagehide", stopListening);

  live.hidden = false;
  shownTime.textContent = "updated " + new Date().toLocaleTimeString();
  resume();
})();
