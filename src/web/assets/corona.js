// Keeps a page up to date: fetches it again and patches the parts that are marked with `data-live`.
// It draws nothing of its own, so a page shows the same with and without it.
//
// Elements stay and only what differs changes, so that the focus, the place of what is scrolled and
// what a reader has selected survive. Nothing changes while a pointer button is down: what a click
// aims at stays where it is. Rows and list entries are matched by `data-key`.
//
// A refresh is due soon after an event of /api/v1/events, where there are any, and every few seconds.
// Links and forms marked with `data-swap` are followed without a reload of the page.

"use strict";

(() => {
  const MOST_PAUSE_MS = 5000;
  const NEWS_PAUSE_MS = 5000;
  const COME_BACK_MS = 10000;
  // A click follows its pointerup within this time.
  const CLICK_MS = 50;
  // The end of a press can be missed, outside the window.
  const MOST_PRESS_MS = 10000;
  const PAUSED = "corona.paused";
  const leastPauseMs = Number(document.body.dataset.refreshMs || 0);
  if (!leastPauseMs || !window.fetch || !window.DOMParser) return;

  const live = document.getElementById("live");
  const toggle = document.getElementById("live-toggle");
  const shownTime = document.getElementById("live-time");
  const news = document.getElementById("live-news");
  let on = !storedPause();
  let timer = null;
  let lastLook = Date.now();
  let looking = null;

  // --- Refreshes

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
      live.classList.remove("lost");
      show(page, asked);
    } catch (error) {
      if (error.name === "AbortError") return;
      live.classList.add("lost");
      shownTime.textContent = "server not reachable, last updated " + clockOf(document);
    } finally {
      if (looking === mine) looking = null;
      lastLook = Date.now();
      if (on) schedule(MOST_PAUSE_MS);
    }
  }

  // The page that waits for the end of a press.
  let waiting = null;

  function show(page, asked) {
    if (isPressed()) {
      waiting = { page, asked: asked || Boolean(waiting && waiting.asked) };
      return;
    }
    takeOver(page, asked);
    const except = owed ? ", except what is selected" : "";
    shownTime.textContent = (on ? "updated " : "as of ") + clockOf(page) + except;
    // What is over does not change any more.
    if (!page.body.dataset.refreshMs) { on = false; live.hidden = true; stopListening(); }
  }

  // The server's time, in its time zone like all times of the page.
  function clockOf(page) {
    const asOf = page.getElementById("as-of");
    return asOf ? asOf.dataset.clock : "";
  }

  // --- Presses: what is aimed at does not move

  let pressedAt = null;

  function isPressed() {
    return pressedAt !== null && Date.now() - pressedAt < MOST_PRESS_MS;
  }

  function release() {
    if (pressedAt === null) return;
    const was = pressedAt;
    setTimeout(() => {
      if (pressedAt !== was) return;
      pressedAt = null;
      const { page, asked } = waiting || {};
      waiting = null;
      if (page && (on || asked)) show(page, asked);
    }, CLICK_MS);
  }

  document.addEventListener("pointerdown", () => { pressedAt = Date.now(); }, true);
  for (const end of ["pointerup", "pointercancel", "dragend"]) document.addEventListener(end, release, true);
  window.addEventListener("blur", release);

  // --- Patching

  // What a reader has selected, which is left as it is.
  let selected = null;
  // Whether something was left as it is.
  let owed = false;

  function takeOver(page, asked) {
    document.title = page.title;
    const selection = document.getSelection();
    selected = selection && !selection.isCollapsed && selection.rangeCount ? selection.getRangeAt(0) : null;
    owed = false;
    const active = document.activeElement;
    const around = active && active.closest("main") && active.closest(".scroll, [data-live], main");
    const parts = [...document.querySelectorAll("[data-live]")];
    const fresh = [...page.querySelectorAll("[data-live]")];
    if (parts.length === fresh.length && parts.every((part, at) => part.id === fresh[at].id)) {
      parts.forEach((part, at) => patch(part, fresh[at]));
    } else {
      // Another page stands at this address now, such as that of an ended session.
      patch(document.getElementById("main"), page.getElementById("main"));
    }
    if (active && active !== document.activeElement) {
      // A node that was moved lost the focus; of one that is gone, what was around it gets it.
      const next = active.isConnected ? active : around && around.isConnected ? around : null;
      if (next) next.focus({ preventScroll: true });
    }
    if (asked) takeOverForm(page);
  }

  function isSelected(node) {
    return selected !== null && selected.intersectsNode(node);
  }

  // Makes `old` what `fresh` is. They have the same name.
  function patch(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (isSelected(old)) owed = true;
      else old.data = fresh.data;
      return;
    }
    for (const { name } of [...old.attributes]) {
      // Whether it is open is the reader's.
      if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value && name !== "open") old.setAttribute(name, value);
    }
    patchChildren(old, fresh);
  }

  function patchChildren(old, fresh) {
    const before = [...old.childNodes];
    const after = [...fresh.childNodes];
    const matches = match(before, after);
    const used = new Set(matches);
    for (const node of before) {
      if (used.has(node)) continue;
      if (isSelected(node)) {
        owed = true;
        if (node.classList) node.classList.add("gone");
      } else {
        node.remove();
      }
    }
    const places = new Map(before.map((node, at) => [node, at]));
    const staying = stay(matches.filter(Boolean), places);
    let next = null;
    for (let at = after.length - 1; at >= 0; at--) {
      const own = matches[at];
      const node = own || document.importNode(after[at], true);
      if (!own || !staying.has(own)) old.insertBefore(node, next);
      else if (own.classList) own.classList.remove("gone");
      next = node;
    }
    after.forEach((node, at) => { if (matches[at]) patch(matches[at], node); });
  }

  function keyOf(node) {
    return node.nodeType === Node.ELEMENT_NODE ? node.dataset.key || node.id || null : null;
  }

  // For each new child the old one that becomes it: that of its key, else the next of its name.
  function match(before, after) {
    const keyed = new Map();
    const loose = new Map();
    for (const node of before) {
      const key = keyOf(node);
      if (key !== null) keyed.set(node.nodeName + " " + key, node);
      else if (loose.has(node.nodeName)) loose.get(node.nodeName).push(node);
      else loose.set(node.nodeName, [node]);
    }
    return after.map((node) => {
      const key = keyOf(node);
      if (key === null) return (loose.get(node.nodeName) || []).shift() || null;
      const name = node.nodeName + " " + key;
      const own = keyed.get(name) || null;
      keyed.delete(name);
      return own;
    });
  }

  // Of nodes in their new order, the largest set that need not be moved. The one with the focus or a
  // selection stays: it would lose that on the way.
  function stay(nodes, places) {
    let order = nodes.map((node) => places.get(node));
    if (order.every((place, at) => at === 0 || place > order[at - 1])) return new Set(nodes);
    const pinned = nodes.findIndex((node) => isSelected(node) || node.contains(document.activeElement));
    if (pinned >= 0) {
      const place = order[pinned];
      order = order.map((other, at) => ((at < pinned) === (other < place) || at === pinned ? other : -1));
    }
    // The longest increasing subsequence: `ends[n]` ends the best one of length n + 1.
    const ends = [];
    const previous = order.map(() => -1);
    order.forEach((place, at) => {
      if (place < 0) return;
      let low = 0;
      let high = ends.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (order[ends[middle]] < place) low = middle + 1;
        else high = middle;
      }
      previous[at] = low > 0 ? ends[low - 1] : -1;
      ends[low] = at;
    });
    const staying = new Set();
    for (let at = ends.length ? ends[ends.length - 1] : -1; at >= 0; at = previous[at]) staying.add(nodes[at]);
    return staying;
  }

  // What was left as it is while it was selected is due when it no longer is.
  document.addEventListener("selectionchange", () => {
    const selection = document.getSelection();
    if (owed && (!selection || selection.isCollapsed)) {
      owed = false;
      schedule(0);
    }
  });

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
    node_added: ["node joined", "nodes joined"],
    node_lost: ["node was lost", "nodes were lost"],
    node_blacklisted: ["node was blacklisted", "nodes were blacklisted"],
    pool_starving: ["pool is starved", "pools are starved"],
    safe_mode: ["change of safe mode", "changes of safe mode"],
    configuration_reloaded: ["change of the configuration", "changes of the configuration"],
    leader_elected: ["change of the leader", "changes of the leader"],
    standby_lost: ["standby was lost", "standbys were lost"],
  };
  const QUIET = ["session_granted", "session_revoked", "missed", "standby_ready", "stepping_down"];

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
      // A refusal is final for the browser; refreshes go on without events meanwhile.
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

  // --- On and off, for all pages of this tab

  function storedPause() {
    try { return sessionStorage.getItem(PAUSED) !== null; } catch (error) { return false; }
  }

  function storePause() {
    // A browser may refuse to store anything; then a pause ends with the page.
    try {
      if (on) sessionStorage.removeItem(PAUSED);
      else sessionStorage.setItem(PAUSED, "1");
    } catch (error) { /* as above */ }
  }

  function resume() {
    if (!on || document.hidden) return stopListening();
    listen();
    schedule(0);
  }

  function showState() {
    toggle.setAttribute("aria-pressed", String(on));
    toggle.textContent = on ? "Live" : "Paused";
    shownTime.textContent = (on ? "updated " : "as of ") + clockOf(document);
  }

  toggle.addEventListener("click", () => {
    on = !on;
    storePause();
    showState();
    if (timer) clearTimeout(timer.id);
    timer = null;
    resume();
  });
  document.addEventListener("visibilitychange", resume);
  window.addEventListener("pagehide", stopListening);

  live.hidden = false;
  showState();
  resume();
})();
