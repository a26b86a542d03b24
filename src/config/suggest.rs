//! "Did you mean": the known name that a mistyped one is most like.
//!
//! It knows nothing of keys and files, only texts.

/// Longer texts are no typing errors, and comparing them would cost time.
const LONGEST: usize = 100;

/// The known name that is most like `text`, whatever the case; none if nothing is like it.
pub fn similar<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed: Vec<char> = text.chars().take(LONGEST + 1).flat_map(char::to_lowercase).collect();
    if typed.is_empty() || typed.len() > LONGEST {
        return None;
    }
    let near = known.into_iter().filter_map(|name| {
        let name_chars: Vec<char> = name.chars().flat_map(char::to_lowercase).collect();
        // One error in a short name, three in a long one.
        let most = (typed.len().max(name_chars.len()) / 7).clamp(1, 3);
        // Each character more costs at least one change.
        if typed.len().abs_diff(name_chars.len()) > most {
            return None;
        }
        let distance = distance(&typed, &name_chars);
        (distance <= most && distance < typed.len()).then_some((distance, name))
    });
    near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// How many characters must be added, dropped, changed, or swapped with their neighbour.
fn distance(one: &[char], other: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, a) in one.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, b) in other.iter().enumerate() {
            let at = |line: &[usize], index: usize| line.get(index).copied().unwrap_or(usize::MAX);
            let mut cost = at(&last, column).saturating_add(usize::from(a != b));
            cost = cost.min(at(&last, column + 1).saturating_add(1));
            cost = cost.min(at(&current, column).saturating_add(1));
            let swapped = row > 0
                && column > 0
                && one.get(row - 1) == Some(b)
                && other.get(column - 1) == Some(a);
            if swapped {
                cost = cost.min(at(&before_last, column - 1).saturating_add(1));
            }
            current.push(cost);
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_names_are_recognised() {
        let known = ["cm.server.address", "cm.server.http.address", "maxMAP", "minMAP", "FAIR"];
        for (text, expected) in [
            ("cm.server.adress", Some("cm.server.address")),
            ("cm.sevrer.address", Some("cm.server.address")),
            ("CM.Server.Address", Some("cm.server.address")),
            ("cm.server.https.address", Some("cm.server.http.address")),
            ("maxMaps", Some("maxMAP")),
            ("minmap", Some("minMAP")),
            ("Fair", Some("FAIR")),
            ("FIAR", Some("FAIR")),
            ("FAIR_PREEMPT", None),
            ("cm.state", None),
            ("", None),
            ("F", None),
        ] {
            assert_eq!(similar(text, known), expected, "{text}");
        }
        assert_eq!(similar(&"a".repeat(1_000_000), ["a"]), None);
    }

    #[test]
    fn distances() {
        for (one, other, expected) in
            [("", "", 0), ("a", "", 1), ("", "ab", 2), ("ab", "ba", 1), ("abc", "adc", 1)]
        {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            assert_eq!(distance(&chars(one), &chars(other)), expected, "{one} {other}");
        }
    }
}
