//! Forms by which people choose the rows of a table.

use maud::{Markup, html};

use crate::exchange::Parameters;

/// The form with these fields, for the table of a page. The order of the table stays.
pub fn form(path: &str, parameters: &Parameters, fields: &Markup) -> Markup {
    html! {
        form.filter method="get" action=(path) role="search" data-swap {
            (fields)
            @if let Some(sort) = parameters.text("sort") {
                input type="hidden" name="sort" value=(sort);
            }
            div { button type="submit" { "Apply" } " " a href=(path) data-swap { "Reset" } }
        }
    }
}

/// A field for a word that is looked for.
pub fn search(parameters: &Parameters, hint: &str) -> Markup {
    field(parameters, "q", "Search", "search", hint)
}

/// A field for a text, with an example.
pub fn text(parameters: &Parameters, name: &str, title: &str, hint: &str) -> Markup {
    field(parameters, name, title, "text", hint)
}

fn field(parameters: &Parameters, name: &str, title: &str, kind: &str, hint: &str) -> Markup {
    html! {
        div {
            label for=(name) { (title) }
            input #(name) type=(kind) name=(name) value=[parameters.text(name)] placeholder=(hint);
        }
    }
}

/// A choice between values, each with what people read.
pub fn choice<'a>(
    name: &str,
    title: &str,
    chosen: &str,
    options: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Markup {
    html! {
        div {
            label for=(name) { (title) }
            select #(name) name=(name) {
                @for (value, shown) in options {
                    option value=(value) selected[value == chosen] { (shown) }
                }
            }
        }
    }
}

/// A choice of at most one of several words.
pub fn words<'a>(
    parameters: &Parameters,
    name: &str,
    title: &str,
    words: impl IntoIterator<Item = &'a str>,
) -> Markup {
    let options = words.into_iter().map(|word| (word, word));
    let chosen = parameters.text(name).unwrap_or_default();
    choice(name, title, chosen, [("", "any")].into_iter().chain(options))
}

/// A box to tick.
pub fn check(parameters: &Parameters, name: &str, title: &str) -> Markup {
    html! {
        div.check {
            input #(name) type="checkbox" name=(name) value="1" checked[parameters.text(name).is_some()];
            label for=(name) { (title) }
        }
    }
}
