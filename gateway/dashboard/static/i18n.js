// The language of the page. English texts are the keys of the translations.

import { texts } from "./texts.js";

const KEPT = "thriftgate-language";
const LOCALES = { en: "en", es: "es", pt: "pt-BR" };
const PLACES = { es: 0, pt: 1 };
const wanted = sessionStorage.getItem(KEPT) ?? navigator.language.slice(0, 2);

export const language = wanted in LOCALES ? wanted : "en";
export const locale = LOCALES[language];

/** English sentences of the server → their translations, as it has sent them. */
export const said = { __proto__: null };

const translated = (text) => (language === "en" ? text : texts[text]?.[PLACES[language]] ?? texts[text]?.[0] ?? text);

/** The text in the page's language. `{0}`, `{1}` … are replaced by `values`. */
export const t = (text, ...values) => translated(text).replace(/\{(\d)\}/g, (_, place) => values[place]);

/** Like `t`, for values that are elements: returns a list of texts and elements. */
export const tn = (text, ...values) =>
  translated(text).split(/(\{\d\})/).filter(Boolean).map((part) => (/^\{\d\}$/.test(part) ? values[part[1]] : part));

/** Translate the texts of `index.html`, and let the user choose the language. */
export function translate(choice) {
  document.documentElement.lang = language;
  for (const element of document.querySelectorAll("[data-t]")) {
    const name = element.dataset.t;
    if (name) element.setAttribute(name, t(element.getAttribute(name)));
    else element.textContent = t(element.textContent.trim());
  }
  for (const title of document.querySelectorAll("section:not([aria-labelledby]) > h2")) title.parentElement.setAttribute("aria-label", title.textContent);
  choice.value = language;
  choice.addEventListener("change", () => {
    sessionStorage.setItem(KEPT, choice.value);
    location.reload();
  });
}
