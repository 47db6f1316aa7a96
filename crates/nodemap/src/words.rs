//! Small helpers of wording for findings: near misses, lists of names, long input cut short.

/// Characters of a person's input that a message repeats at most.
const CLIP_CHARS: usize = 80;

/// Names that a message lists at most.
const LIST_MAX: usize = 12;

/// `text`, cut to a length that a message can bear.
pub(crate) fn clip(text: &str) -> String {
    match text.char_indices().nth(CLIP_CHARS) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// `a, b, c`, or the first ones and how many there are.
pub(crate) fn list(names: &[&str]) -> String {
    match names.get(..LIST_MAX) {
        Some(first) if names.len() > LIST_MAX => {
            format!("{}, ... ({} in all)", first.join(", "), names.len())
        }
        _ => names.join(", "),
    }
}

/// `did you mean NAME? ` when one of `known` is near to `word`, else nothing.
pub(crate) fn guess(word: &str, known: &[&str]) -> String {
    if word.len() > CLIP_CHARS {
        return String::new();
    }
    let known = known.iter().filter(|k| k.len() <= CLIP_CHARS);
    // Half a name is taken for the whole one: `ttl` for `ttl_s`.
    let steps = |known: &str| {
        if word.len() >= 3 && known.starts_with(word) { 1 } else { distance(word, known) }
    };
    let near = known.map(|known| (steps(known), *known)).min();
    let allowed = (word.len() / 3).min(2);
    match near {
        Some((steps, name)) if steps <= allowed => format!("did you mean {name}? "),
        _ => String::new(),
    }
}

/// How many insertions, removals, changes and swaps of neighbours lead from `a` to `b`
/// (optimal string alignment).
#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "rows have b.len() + 1 cells, and words are at most as long as a message bears"
)]
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, cb) in b.iter().enumerate() {
            let mut steps = (last[j] + usize::from(ca != cb)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *ca == b[j - 1] && a[i - 1] == *cb {
                steps = steps.min(before[j - 1] + 1);
            }
            row.push(steps);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misses_are_offered_and_far_ones_are_not() {
        for (word, expected) in [
            ("adresses", "did you mean addresses? "),
            ("stie", "did you mean site? "),
            ("capacity", "did you mean capacity? "),
            ("cap", "did you mean capacity? "),
            ("mirror9-us", ""),
            ("weight", ""),
            ("x", ""),
        ] {
            let known = ["addresses", "site", "capacity", "y", "mirror1-au"];
            assert_eq!(guess(word, &known), expected, "{word}");
        }
    }

    #[test]
    fn distance_counts_edits() {
        for (a, b, steps) in
            [("", "abc", 3), ("abc", "abc", 0), ("ab", "ba", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(a, b), steps, "{a} {b}");
        }
    }

    #[test]
    fn long_input_and_long_lists_are_cut() {
        assert_eq!(clip(&"ä".repeat(200)).chars().count(), CLIP_CHARS + 3);
        let names = ["n"; 13];
        assert_eq!(list(&names), "n, n, n, n, n, n, n, n, n, n, n, n, ... (13 in all)");
    }
}
