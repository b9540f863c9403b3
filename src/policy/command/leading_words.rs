//! Matches the arguments of a tool with subcommands of subcommands, whose options may stand between any two of these: `docker compose -f FILE
//! down`. For rules that deny or ask: what stands between is at most doubtful, and never in the way.

use std::collections::BTreeMap;

use super::{
    pattern::{Element, Match, match_arguments},
    shell::Word,
    tool_options::OptionPlace,
};

/// Matches where the tool's options stand behind one of the first `leading` words of the pattern and before the next.
pub fn match_among_options(
    elements: &[Element],
    leading: usize,
    words: &[Word],
    beginning: OptionPlace,
) -> Match {
    if leading < 2 {
        return Match::No;
    }
    // How surely the words before each place are those of the pattern so far.
    let mut reached = Reached::default();
    reached.add(0, Match::Yes, beginning);
    for (at, element) in elements.iter().take(leading).enumerate() {
        // Options before the first word have been left out by others.
        reached.pass(words, if at == 0 { Pass::UnknownWords } else { Pass::OptionsToo });
        reached = reached.take(element, words);
    }
    let rest = elements.get(leading..).unwrap_or_default();
    let behind = reached
        .0
        .iter()
        .filter_map(|(at, (certainty, _))| Some(certainty.and(match_arguments(rest, words.get(*at..)?))));
    behind.fold(Match::No, Match::or)
}

/// What may stand before a word of the pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Words that are not known, which may turn out to be none.
    UnknownWords,
    /// These, and options.
    OptionsToo,
}

/// By the number of words taken so far: how surely they are what the pattern says, and where among the subcommands that is.
#[derive(Default)]
struct Reached(BTreeMap<usize, (Match, OptionPlace)>);

impl Reached {
    fn add(&mut self, at: usize, certainty: Match, place: OptionPlace) {
        if certainty == Match::No {
            return;
        }
        self.0
            .entry(at)
            .and_modify(|(before, known)| {
                *before = before.or(certainty);
                if *known != place {
                    *known = place.somewhere();
                }
            })
            .or_insert((certainty, place));
    }

    /// Leaves out what may stand here.
    fn pass(&mut self, words: &[Word], pass: Pass) {
        let mut from = 0;
        while let Some((&at, &(certainty, place))) = self.0.range(from..).next() {
            from = at + 1;
            match words.get(at) {
                Some(word) if word.literal().is_none() => self.add(at + 1, Match::Perhaps, place.somewhere()),
                Some(_) if pass == Pass::OptionsToo => {
                    for (length, is_certain) in place.lengths(&words[at..]) {
                        let here = if is_certain { certainty } else { Match::Perhaps };
                        self.add((at + length).min(words.len()), here, place);
                    }
                }
                _ => {}
            }
        }
    }

    /// Takes the pattern's next word.
    fn take(&self, element: &Element, words: &[Word]) -> Self {
        let mut next = Self::default();
        for (&at, &(certainty, place)) in &self.0 {
            let Some(word) = words.get(at) else { continue };
            match word.literal() {
                Some(text) => next.add(at + 1, certainty.and(element.matches(word)), place.below(text)),
                // It may turn out to be this word alone, or this and more.
                None => {
                    next.add(at + 1, Match::Perhaps, place.somewhere());
                    next.add(at, Match::Perhaps, place.somewhere());
                }
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        pattern::{Regexes, WordSource},
        shell::OpaqueReason,
    };
    use super::*;

    fn matched(pattern: &str, line: &str) -> Match {
        let elements: Vec<Element> = pattern
            .split(' ')
            .skip(1)
            .map(|word| {
                Element::compile(&WordSource::Text(word.into()), &Regexes::default())
                    .unwrap_or_else(|e| panic!("{e}"))
            })
            .collect();
        let word = |text: &str| match text.starts_with('$') {
            true => Word::Opaque { text: text.into(), reason: OpaqueReason::Expansion },
            false => Word::Literal(text.into()),
        };
        let words: Vec<Word> = line.split(' ').skip(1).map(word).collect();
        let program = line.split(' ').next().unwrap_or_default();
        let place = OptionPlace::of(program).unwrap_or_else(|| panic!("{program} is known"));
        let leading = elements.iter().take_while(|element| element.is_plain_word()).count();
        match_arguments(&elements, &words).or(match_among_options(&elements, leading, &words, place))
    }

    #[test]
    fn listed_options_between_two_subcommands_are_left_out_with_their_values() {
        for line in [
            "docker compose down",
            "docker compose -f x.yml down",
            "docker compose -fx.yml down -v",
            "docker compose --file=x.yml --profile x -p y down",
            "docker compose --unknown=1 down",
            "docker compose --context x down",
        ] {
            assert_eq!(matched("docker compose down **", line), Match::Yes, "{line}");
        }
        assert_eq!(matched("git remote remove **", "git remote -v remove foo"), Match::Yes);
        assert_eq!(matched("git submodule foreach **", "git submodule --quiet foreach x"), Match::Yes);
        assert_eq!(matched("npm dist-tag add **", "npm dist-tag --tag x add y"), Match::Yes);
        assert_eq!(matched("kubectl config view **", "kubectl config -oyaml view"), Match::Yes);
    }

    #[test]
    fn an_option_that_is_not_listed_is_perhaps_one_word_or_two() {
        for line in [
            "kubectl config -xyaml view",
            "kubectl config -x yaml view",
            "kubectl config --new yaml view",
            "kubectl config --new view",
            "kubectl config -- view",
            "kubectl config $X view",
            "kubectl config -o $X view",
            "kubectl $X -R view",
        ] {
            assert_eq!(matched("kubectl config view **", line), Match::Perhaps, "{line}");
        }
        assert_eq!(matched("npm dist-tag add **", "npm dist-tag --foo x add y"), Match::Perhaps);
        assert_eq!(matched("a b c d", "npm b --x c --y 1 d"), Match::Perhaps);
    }

    #[test]
    fn other_words_are_in_the_way_and_so_is_another_subcommand() {
        for line in [
            "docker compose up down",
            "docker compose -f down up",
            "docker compose -p x up down",
            "docker compose",
            "docker compose -f x.yml",
        ] {
            assert_eq!(matched("docker compose down **", line), Match::No, "{line}");
        }
        assert_eq!(matched("git stash drop **", "git stash push -m drop"), Match::No);
        // Behind the words of the rule, options are the rule's own matter.
        assert_eq!(matched("git remote remove -* **", "git remote remove x -f"), Match::No);
    }

    #[test]
    fn many_options_are_no_burden() {
        let options = "-x ".repeat(5_000);
        assert_eq!(matched("git remote remove x", &format!("git remote {options}add")), Match::No);
    }
}
