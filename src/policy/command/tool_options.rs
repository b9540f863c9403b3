//! Subcommands of tools, and the options that may stand before or among them: `policies/data/tool-options.toml`, compiled in.
//!
//! Finds where a subcommand may begin. Which of these places counts for a rule is decided by the rule. For rules that deny or ask, options
//! may stand between any two words of a pattern (`docker compose -f FILE down`): what stands between is at most doubtful, and never in the
//! way.

use std::{
    collections::{BTreeMap, HashMap},
    sync::LazyLock,
};

use serde::Deserialize;

use super::{
    pattern::{Element, Match, match_arguments},
    shell::Word,
};

/// Matches where the tool's options stand behind one of the first `leading` words of the pattern and before the next.
pub(crate) fn match_among_options(
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

/// The options of one tool.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ToolOptions {
    programs: Vec<String>,
    harmless: Vec<String>,
    harmless_with_value: Vec<String>,
    flags: Vec<String>,
    with_value: Vec<String>,
    anywhere: bool,
    subcommands: BTreeMap<String, ToolOptions>,
}

static TOOLS: LazyLock<HashMap<String, &'static ToolOptions>> = LazyLock::new(|| {
    let tools: BTreeMap<String, ToolOptions> =
        toml::from_str(include_str!("../policies/data/tool-options.toml"))
            .expect("the data file is part of the build, and a test reads it");
    let mut by_name = HashMap::new();
    for (name, options) in tools {
        let options: &'static ToolOptions = Box::leak(Box::new(options));
        let names = match options.programs.as_slice() {
            [] => vec![name],
            programs => programs.to_vec(),
        };
        by_name.extend(names.into_iter().map(|name| (name, options)));
    }
    by_name
});

/// Arguments of a tool without options of its own that stand before a word of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BehindOptions {
    /// From where a subcommand may begin.
    pub arguments: Vec<Word>,
    /// Whether every option before it is known, so that this is certain not to be the value of one.
    pub is_certain: bool,
    /// Whether the options change nothing about what the subcommand does.
    pub is_harmless: bool,
}

/// Whether the options of this program are known.
pub(crate) fn is_known(program: &str) -> bool {
    TOOLS.contains_key(program)
}

/// Whether a program's own options are known to have this one.
pub(crate) fn is_option_of(program: &str, option: &str) -> bool {
    TOOLS.get(program).is_some_and(|tool| tool.lists(option))
}

/// Whether an option among these arguments is known to take no value from the next word.
pub(crate) fn takes_nothing(program: &str, arguments: &[Word], option: &str) -> bool {
    let Some(beginning) = OptionPlace::of(program) else { return false };
    let mut words = arguments.iter().map_while(Word::literal);
    // Behind a subcommand, the same letters may mean something else.
    let mut place = beginning.below(words.next().unwrap_or_default());
    for word in words {
        match place.below(word) {
            OptionPlace { within: None, .. } => break,
            below => place = below,
        }
    }
    place.listed(option) == Some(Takes::Nothing)
}

/// A place among a tool's subcommands, for the options that may stand there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OptionPlace {
    tool: &'static ToolOptions,
    /// Those of the subcommand, as far as they are known.
    within: Option<&'static ToolOptions>,
}

impl PartialEq for OptionPlace {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.tool, other.tool)
            && match (self.within, other.within) {
                (Some(one), Some(other)) => std::ptr::eq(one, other),
                (one, other) => one.is_none() && other.is_none(),
            }
    }
}

impl OptionPlace {
    /// The beginning of a tool's arguments. `None` where its options are not known.
    pub(crate) fn of(program: &str) -> Option<Self> {
        TOOLS.get(program).map(|tool| Self { tool, within: Some(tool) })
    }

    /// Behind a subcommand.
    #[must_use]
    pub(crate) fn below(self, subcommand: &str) -> Self {
        Self { within: self.within.and_then(|options| options.subcommands.get(subcommand)), ..self }
    }

    /// A place that is one of several.
    #[must_use]
    pub(crate) fn somewhere(self) -> Self {
        Self { within: None, ..self }
    }

    /// How many words the option at the beginning of these may take, itself counted, each with whether that is certain. Empty where it is
    /// no option.
    pub(crate) fn lengths(self, words: &[Word]) -> Vec<(usize, bool)> {
        let Some(text) = words.first().and_then(Word::literal) else { return Vec::new() };
        // No subcommand stands behind it, for most tools.
        if text == "--" {
            return vec![(1, false)];
        }
        let takes = self.listed(text).or_else(|| ToolOptions::default().option(text).map(|(takes, _)| takes));
        takes.map(|takes| takes.lengths(words.get(1).and_then(Word::literal))).unwrap_or_default()
    }

    /// What an option takes that is known here.
    fn listed(self, text: &str) -> Option<Takes> {
        let everywhere = self.tool.anywhere.then_some(self.tool);
        let known = |options: &'static ToolOptions| {
            options.option(text).map(|(takes, _)| takes).filter(|takes| *takes != Takes::Perhaps)
        };
        // What no list has says by its `=` that it takes no other word.
        self.within.and_then(known).or_else(|| everywhere.and_then(known))
    }
}

/// The arguments from each word at which a subcommand may begin, except as they are written. Empty for programs that are not known.
pub(crate) fn behind_options(program: &str, arguments: &[Word]) -> Vec<BehindOptions> {
    let Some(tool) = TOOLS.get(program) else { return Vec::new() };
    let mut found = tool.starts(arguments);
    if tool.anywhere {
        let (rest, is_certain) = tool.without_any(arguments);
        if rest.len() < arguments.len() {
            found.extend(
                tool.starts(&rest).into_iter().map(|start| BehindOptions { is_harmless: false, ..start }),
            );
            found.push(BehindOptions { arguments: rest, is_certain, is_harmless: false });
        }
    }
    found
}

/// What an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    NextWord,
    /// Nothing, or the next word: the option is not known.
    Perhaps,
}

impl Takes {
    /// How many words an option of this kind may be with its value, before a word that may be it; each with whether that is certain.
    fn lengths(self, next: Option<&str>) -> Vec<(usize, bool)> {
        match (self, next) {
            // nopt, of npm, takes a truth value that follows.
            (Self::Nothing, Some("true" | "false" | "null")) | (Self::Perhaps, _) => {
                vec![(1, false), (2, false)]
            }
            (Self::Nothing, _) => vec![(1, true)],
            (Self::NextWord, Some(_)) => vec![(2, true)],
            // An unknown value may be several words, or none.
            (Self::NextWord, None) => vec![(1, false), (2, false)],
        }
    }
}

impl ToolOptions {
    fn lists(&self, option: &str) -> bool {
        [&self.harmless, &self.harmless_with_value, &self.flags, &self.with_value]
            .into_iter()
            .any(|list| list.iter().any(|known| known == option))
    }

    /// The arguments behind each of the options at the beginning.
    fn starts(&self, arguments: &[Word]) -> Vec<BehindOptions> {
        // How each word can be reached; `None`: not at all.
        let mut reached: Vec<Option<(bool, bool)>> = vec![None; arguments.len() + 3];
        reached[0] = Some((true, true));
        for at in 0..arguments.len() {
            let Some((is_certain, is_harmless)) = reached[at] else { continue };
            let Some(text) = arguments[at].literal() else { continue };
            let Some((takes, changes_nothing)) = self.option(text) else { continue };
            let is_harmless = is_harmless && changes_nothing;
            let mut reach = |to: usize, is_certain: bool| {
                let (certain, harmless) = reached[to].unwrap_or((false, true));
                reached[to] = Some((certain || is_certain, harmless && is_harmless));
            };
            for (words, is_sure) in takes.lengths(arguments.get(at + 1).and_then(Word::literal)) {
                reach(at + words, is_certain && is_sure);
            }
        }
        let behind = reached.iter().enumerate().take(arguments.len() + 1).skip(1);
        behind
            .filter_map(|(at, reached)| {
                let (is_certain, is_harmless) = (*reached)?;
                Some(BehindOptions { arguments: arguments[at..].to_vec(), is_certain, is_harmless })
            })
            .collect()
    }

    /// The arguments without the known options, wherever they stand before `--`; and whether none of their values is unknown.
    fn without_any(&self, arguments: &[Word]) -> (Vec<Word>, bool) {
        let mut rest = Vec::with_capacity(arguments.len());
        let mut is_certain = true;
        let mut at = 0;
        while let Some(word) = arguments.get(at) {
            at += 1;
            match word.literal() {
                Some("--") => {
                    rest.extend_from_slice(&arguments[at..]);
                    break;
                }
                Some(text) => match self.option(text).map(|(takes, _)| takes) {
                    Some(Takes::Nothing) => {}
                    Some(Takes::NextWord) => {
                        is_certain &= arguments.get(at).is_some_and(|value| value.literal().is_some());
                        at += 1;
                    }
                    Some(Takes::Perhaps) | None => rest.push(word.clone()),
                },
                None => rest.push(word.clone()),
            }
        }
        (rest, is_certain)
    }

    /// What an option takes, and whether it changes nothing. `None`: it is no option.
    fn option(&self, text: &str) -> Option<(Takes, bool)> {
        if text == "--" {
            return Some((Takes::Nothing, false));
        }
        let is_in = |list: &[String], name: &str| {
            list.iter().any(|known| match known.strip_suffix('*') {
                Some(beginning) => name.starts_with(beginning),
                None => known == name,
            })
        };
        let (name, is_attached) = match text.split_once('=') {
            Some((name, _)) if text.starts_with("--") => (name, true),
            _ => (text, false),
        };
        if is_in(&self.harmless, name) || is_in(&self.flags, name) {
            return Some((Takes::Nothing, is_in(&self.harmless, name) && !is_attached));
        }
        let is_harmless = is_in(&self.harmless_with_value, name);
        if is_harmless || is_in(&self.with_value, name) {
            return Some((if is_attached { Takes::Nothing } else { Takes::NextWord }, is_harmless));
        }
        if !text.starts_with('-') || text == "-" {
            return is_in(&self.flags, text).then_some((Takes::Nothing, false));
        }
        if is_attached {
            return Some((Takes::Nothing, false));
        }
        match text.starts_with("--") {
            true => Some((Takes::Perhaps, false)),
            false => Some((self.cluster(&text[1..]), false)),
        }
    }

    /// What several short options in one word take, the last of them perhaps with its value: `-nDEFAULT`, `-yn default`.
    fn cluster(&self, letters: &str) -> Takes {
        for (at, letter) in letters.char_indices() {
            let short = format!("-{letter}");
            if self.with_value.contains(&short) || self.harmless_with_value.contains(&short) {
                let is_last = at + letter.len_utf8() == letters.len();
                return if is_last { Takes::NextWord } else { Takes::Nothing };
            }
            if !self.flags.contains(&short) && !self.harmless.contains(&short) {
                return Takes::Perhaps;
            }
        }
        Takes::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            pattern::{Regexes, WordSource},
            shell::OpaqueReason,
        },
        *,
    };

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

    /// The arguments behind options: with `?` where that is not certain, with `!` where the options change something.
    fn behind(line: &str) -> Vec<String> {
        let mut words = line.split(' ');
        let program = words.next().unwrap_or_default();
        let arguments: Vec<Word> = words.map(|word| Word::Literal(word.into())).collect();
        let show = |found: BehindOptions| {
            let words: Vec<&str> = found.arguments.iter().filter_map(Word::literal).collect();
            let (doubt, change) =
                (if found.is_certain { "" } else { "?" }, if found.is_harmless { "" } else { "!" });
            format!("{doubt}{change}{}", words.join(" "))
        };
        behind_options(program, &arguments).into_iter().map(show).collect()
    }

    #[test]
    fn the_data_is_plain_and_names_each_option_once() {
        assert!(is_known("git") && is_known("pip3") && is_known("apt-get") && !is_known("rm"));
        let mut tools: Vec<(&String, &ToolOptions)> =
            TOOLS.iter().map(|(name, tool)| (name, *tool)).collect();
        let mut at = 0;
        while let Some((_, tool)) = tools.get(at) {
            tools.extend(&tool.subcommands);
            at += 1;
        }
        for (name, tool) in tools {
            let all: Vec<&String> =
                [&tool.harmless, &tool.harmless_with_value, &tool.flags, &tool.with_value]
                    .into_iter()
                    .flatten()
                    .collect();
            for (at, option) in all.iter().enumerate() {
                assert!(option.len() > 1 && option.starts_with(['-', '+']), "{name}: {option}");
                assert!(!all[..at].contains(option), "{name} has {option} twice");
            }
        }
    }

    #[test]
    fn a_subcommand_is_found_behind_options_with_and_without_values() {
        assert_eq!(behind("git push"), [""; 0]);
        assert_eq!(behind("git --no-pager push x"), ["push x"]);
        assert_eq!(behind("git -C push status"), ["!status"]);
        assert_eq!(behind("git -P -c a=b push"), ["-c a=b push", "!push"]);
        assert_eq!(behind("git --git-dir=x push"), ["!push"]);
        assert_eq!(behind("git --git-dir x push"), ["!push"]);
        assert_eq!(behind("cargo +nightly -q publish"), ["!-q publish", "!publish"]);
        assert_eq!(behind("terraform -chdir=x apply"), ["!apply"]);
        assert_eq!(behind("rm -rf push"), [""; 0]);
    }

    #[test]
    fn behind_an_option_that_is_not_known_it_is_perhaps() {
        assert_eq!(behind("git --new push x"), ["?!push x", "?!x"]);
        assert_eq!(behind("git --new=1 push"), ["!push"]);
        assert_eq!(behind("npm --force true publish")[0..2], ["?!true publish", "?!publish"]);
    }

    #[test]
    fn options_that_may_stand_anywhere_are_taken_out_everywhere() {
        assert!(behind("kubectl delete -n x pod y").contains(&"!delete pod y".to_owned()));
        assert!(behind("kubectl -nx delete pod").contains(&"!delete pod".to_owned()));
        assert!(behind("docker image --context x push y").contains(&"!image push y".to_owned()));
        assert!(behind("npm run -- -s x").iter().all(|found| !found.ends_with("run x")));
        assert_eq!(behind("git stash -p push"), [""; 0]);
    }

    #[test]
    fn an_unknown_value_may_be_several_words() {
        let opaque =
            || Word::Opaque { text: "$x".into(), reason: super::super::shell::OpaqueReason::Expansion };
        let words = [Word::Literal("-C".into()), opaque(), Word::Literal("push".into())];
        let found = behind_options("git", &words);
        assert!(found.iter().any(|found| found.arguments == words[2..] && !found.is_certain), "{found:?}");
    }
}
