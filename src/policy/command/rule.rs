//! Rules: what a policy file says about commands, compiled, and matched against one command at a time.
//!
//! A rule knows nothing of other rules; how several are weighed is in [`super::verdict`]. A rule that does not
//! hold on its own examples is not accepted.

mod conditions;
mod places;
mod source;

use std::{borrow::Cow, cell::OnceCell};

use super::{
    flags::{Flags, OptionSyntax},
    kinds::{self, chooses_by_name},
    known_directories::{Below, KnownDirectories},
    pattern::{Element, Match, PatternError, Regexes, TextPattern, match_arguments},
    program::{ProgramResolver, Resolved},
    shell::{LineCwd, Word},
    tool_options::{BehindOptions, OptionPlace, behind_options, match_among_options, takes_nothing},
};

pub use super::program::base_name;
pub(crate) use super::program::resolve_place;
use conditions::Conditions;
pub use conditions::RequestContext;
use places::{Places, is_about_paths, is_called_by, is_relative, plain};
pub(crate) use source::{ClaimedField, Effects, RuleError, RuleMode, SkipSource};
pub use source::{Decision, RuleAt, RuleSource, Starts};

/// One command to be matched: a program with its arguments, in its request context.
#[derive(Debug)]
pub struct RuleSubject<'a> {
    words: &'a [Word],
    file: &'a Resolved,
    is_itself: bool,
    place: &'a LineCwd,
    request: &'a RequestContext,
    /// The last part of the command word, where it is known.
    base: Option<&'a str>,
    /// The last part of the file's own path, where the file is one program.
    real_base: Option<&'a str>,
    /// Where the file lies; found when the first rule for a path asks.
    places: OnceCell<Places>,
    /// The arguments behind options of the tool itself, where its options are known.
    behind_options: Vec<BehindOptions>,
    /// The beginning of the arguments of each tool that it may be, where its options are known.
    tools: Vec<OptionPlace>,
    option_syntax: OptionSyntax,
}

/// What a command is to the request that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandRole {
    /// The command of the request itself.
    First,
    /// One that the request's command names: of a shell line, or behind a wrapper.
    Within,
    /// One that a process executes.
    Exec,
}

impl<'a> RuleSubject<'a> {
    /// `words`: the command word and the arguments. `file`: what the command word names; `is_itself`: it is what the
    /// trusted path says of its name, or a builtin of the shell. `place`: where it runs, relative to the directory of the
    /// request context.
    pub fn of(
        words: &'a [Word],
        file: &'a Resolved,
        is_itself: bool,
        place: &'a LineCwd,
        request: &'a RequestContext,
    ) -> Self {
        let base = words.first().and_then(Word::literal).map(base_name);
        let real_base = file.path().map(base_name).filter(|name| !chooses_by_name(name));
        let arguments = words.get(1..).unwrap_or_default();
        let names = [base, real_base.filter(|real| Some(*real) != base)].into_iter().flatten();
        let behind_options = names.clone().flat_map(|name| behind_options(name, arguments)).collect();
        let tools = names.clone().filter_map(OptionPlace::of).collect();
        // What the trusted path has under a name is what that name says, wherever it lies.
        let option_syntax = OptionSyntax::of(names.take(if is_itself { 1 } else { 2 }));
        Self {
            words,
            file,
            is_itself,
            place,
            request,
            base,
            real_base,
            places: OnceCell::new(),
            behind_options,
            tools,
            option_syntax,
        }
    }

    fn places(&self, programs: &dyn ProgramResolver) -> &Places {
        self.places.get_or_init(|| {
            let given = self.words.first().and_then(Word::literal).unwrap_or_default();
            Places::of(given, self.file, self.place, self.request, programs)
        })
    }
}

/// A compiled rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Its id.
    pub id: String,
    /// What it decides.
    pub decision: Decision,
    /// Whether it decides or only watches.
    pub mode: RuleMode,
    /// For the caller.
    pub reason: Option<String>,
    /// What it changes about a command that it lets run.
    pub effects: Effects,
    /// What a command that it lets run may start.
    pub starts: Option<Starts>,
    /// Lines that it says it matches, and does.
    pub examples: Vec<String>,
    at: Option<RuleAt>,
    program: ProgramPattern,
    arguments: Vec<Element>,
    flags: Option<Flags>,
    skip: SkipSource,
    when: Conditions,
}

#[derive(Debug, Clone)]
enum ProgramPattern {
    Any,
    OneOf(Vec<ProgramText>),
}

/// What a pattern for programs is about.
#[derive(Debug, Clone)]
enum ProgramText {
    /// Names, wherever the file lies.
    Name(TextPattern),
    /// Where the file lies, from the working directory where the pattern begins with a dot.
    Path { text: TextPattern, is_relative: bool },
}

impl ProgramText {
    fn of(text: TextPattern) -> Self {
        match is_about_paths(&text) {
            true => Self::path(text),
            false => Self::Name(text),
        }
    }

    fn path(text: TextPattern) -> Self {
        let is_relative = is_relative(&text);
        let text = match text {
            TextPattern::Literal(path) if is_relative || path.starts_with('/') => {
                TextPattern::Literal(plain(&path))
            }
            text => text,
        };
        Self::Path { text, is_relative }
    }
}

impl Rule {
    /// Compiles a rule, within what the regular expressions of its policy may still take. Its examples are checked by
    /// [`super::examples::check`], which needs the evaluator.
    pub fn compile(source: &RuleSource, file_mode: RuleMode, regexes: &Regexes) -> Result<Self, RuleError> {
        let compile = |word| Element::compile(word, regexes);
        let id_is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if source.id.is_empty() || !source.id.chars().all(id_is_plain) {
            return Err(RuleError::Id(source.id.clone()));
        }
        if source.decision == Decision::Deny && source.effects != Effects::default() {
            return Err(RuleError::EffectsOfDeny);
        }
        if source.decision == Decision::Deny && source.starts.is_some() {
            return Err(RuleError::StartsOfDeny);
        }
        let in_field = |field| move |cause| RuleError::Pattern { field, cause };
        let (first, rest) = source
            .argv
            .split_first()
            .ok_or(RuleError::Pattern { field: "argv", cause: PatternError::Empty })?;
        let mut arguments: Vec<Element> =
            rest.iter().map(compile).collect::<Result<_, _>>().map_err(in_field("argv"))?;
        let program = match compile(first).map_err(in_field("argv"))? {
            Element::OneOf(texts) => ProgramPattern::OneOf(texts.into_iter().map(ProgramText::of).collect()),
            Element::Rest => {
                arguments.insert(0, Element::Rest);
                ProgramPattern::Any
            }
        };
        let flags = match source.flags.as_slice() {
            [] => None,
            some => Some(Flags::compile(some).map_err(in_field("flags"))?),
        };
        Flags::compile(&source.skip.flags).map_err(in_field("skip.flags"))?;
        Flags::compile(&source.skip.with_value).map_err(in_field("skip.with_value"))?;
        let when = Conditions::compile(&source.when).map_err(in_field("when"))?;
        let grants = source.decision == Decision::Allow || source.effects.grant_more();
        if let Some(claim) = when.unproven_field().filter(|_| grants) {
            return Err(RuleError::Claimed(claim));
        }
        Ok(Self {
            id: source.id.clone(),
            decision: source.decision,
            mode: source.mode.unwrap_or(file_mode),
            reason: source.reason.clone(),
            effects: source.effects.clone(),
            starts: source.starts,
            at: source.at,
            examples: source.matches.clone(),
            program,
            arguments,
            flags,
            skip: source.skip.clone(),
            when,
        })
    }

    /// Whether the rule counts for a command in this role. What is certain to be refused in the tree is refused early; what
    /// only the tree allows is no permission to name it.
    pub fn counts_for(&self, role: CommandRole) -> bool {
        match (self.at, role) {
            (None, _) | (Some(RuleAt::Request), CommandRole::First | CommandRole::Within) => true,
            (Some(RuleAt::Request), CommandRole::Exec) | (Some(RuleAt::Tree), CommandRole::First) => false,
            (Some(RuleAt::Tree), CommandRole::Within) => self.decision != Decision::Allow,
            (Some(RuleAt::Tree), CommandRole::Exec) => true,
        }
    }

    /// The same rule, counted for commands in every role.
    #[must_use]
    pub fn counted_everywhere(&self) -> Self {
        Self { at: None, ..self.clone() }
    }

    /// Whether the rule depends on the environment of the command.
    pub fn reads_environment(&self) -> bool {
        self.when.reads_environment()
    }

    /// The variables that it depends on.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.when.variables()
    }

    /// Whether the rule depends on the working directory.
    pub fn reads_directory(&self) -> bool {
        self.when.reads_directory()
    }

    /// Records what the directories of its conditions are.
    pub fn look_at_directories(
        &self,
        known: &KnownDirectories,
        roots: &[&str],
        programs: &dyn ProgramResolver,
    ) {
        let below = if self.decision == Decision::Allow { Below::Left } else { Below::Recorded };
        self.when.look(known, below, roots, programs);
    }

    /// Whether the rule matches a command.
    pub fn matches(&self, subject: &RuleSubject<'_>, programs: &dyn ProgramResolver) -> Match {
        let Some((command, arguments)) = subject.words.split_first() else { return Match::No };
        let program = self.match_program(command, subject, programs);
        if program == Match::No {
            return Match::No;
        }
        let flags = match (&self.flags, self.decision) {
            (None, _) => Match::Yes,
            (Some(flags), Decision::Allow) => flags.surely_any(arguments, |option| {
                self.skip.flags.iter().any(|skipped| skipped == option)
                    || subject.base.is_some_and(|program| takes_nothing(program, arguments, option))
            }),
            (Some(flags), Decision::Ask | Decision::Deny) => flags.any(arguments, subject.option_syntax),
        };
        if flags == Match::No {
            return Match::No;
        }
        let arguments = self.match_behind_options(arguments, subject);
        // How many words there are is not known either when the command word is not.
        let arguments = match command.literal() {
            None if self.arguments_take_anything() => Match::Yes,
            None => Match::Perhaps,
            Some(_) => arguments,
        };
        program.and(flags).and(arguments).and(self.when.holds(
            subject.request,
            subject.place,
            self.decision,
            programs,
        ))
    }

    /// Matches the arguments as they are written, and behind options of the tool. A rule that allows looks only behind options that change
    /// nothing; one that denies or asks looks behind each of its words.
    fn match_behind_options(&self, arguments: &[Word], subject: &RuleSubject<'_>) -> Match {
        let counts = |found: &&BehindOptions| {
            self.decision != Decision::Allow || (found.is_certain && found.is_harmless)
        };
        let behind = subject.behind_options.iter().filter(counts).map(|found| {
            let certainty = if found.is_certain { Match::Yes } else { Match::Perhaps };
            self.match_words(&found.arguments, subject).and(certainty)
        });
        behind.fold(self.match_words(arguments, subject), Match::or)
    }

    fn match_words(&self, arguments: &[Word], subject: &RuleSubject<'_>) -> Match {
        let arguments = match self.skip == SkipSource::default() {
            true => Cow::Borrowed(arguments),
            false => Cow::Owned(self.without_skipped(arguments)),
        };
        let plain = match_arguments(&self.arguments, &arguments);
        if plain == Match::Yes || self.decision == Decision::Allow {
            return plain;
        }
        let leading = self.arguments.iter().take_while(|element| element.is_plain_word()).count();
        let tools = subject.tools.iter();
        let among = tools.map(|tool| match_among_options(&self.arguments, leading, &arguments, *tool));
        among.fold(plain, Match::or)
    }

    /// Whether the rule is about every command there is.
    pub fn is_about_everything(&self) -> bool {
        matches!(self.program, ProgramPattern::Any) && self.arguments_take_anything()
    }

    fn arguments_take_anything(&self) -> bool {
        self.flags.is_none() && self.arguments.iter().all(|element| matches!(element, Element::Rest))
    }

    /// A rule that allows means the very file that the trusted path names, or that lies where the pattern says. One that denies or asks
    /// also means whatever calls itself so, and that file under another name.
    fn match_program(
        &self,
        command: &Word,
        subject: &RuleSubject<'_>,
        programs: &dyn ProgramResolver,
    ) -> Match {
        let texts = match &self.program {
            ProgramPattern::Any => return Match::Yes,
            ProgramPattern::OneOf(texts) => texts,
        };
        let (Some(given), Some(base)) = (command.literal(), subject.base) else { return Match::Perhaps };
        let file = subject.file;
        let cwd = resolve_place(&subject.request.cwd, subject.place);
        let is_of_its_place = self.decision == Decision::Allow
            && cwd.as_deref().is_some_and(|cwd| kinds::is_of_its_place(file, given, cwd, programs));
        let allows = |text: &ProgramText| match text {
            ProgramText::Name(_) if is_of_its_place => false,
            // It is what lies there by its own path, not what that leads to.
            ProgramText::Path { text, is_relative } if is_of_its_place => {
                is_called_by((text, *is_relative), (given, file), cwd.as_deref(), programs)
            }
            // What does not exist does not run, and then the caller hears just that.
            ProgramText::Name(text) => {
                text.accepts(base) && (subject.is_itself || (*file == Resolved::Missing && base == given))
            }
            ProgramText::Path { text, is_relative } => {
                file.path().is_some_and(|path| text.accepts(path))
                    || (*is_relative && subject.places(programs).are_allowed_by(text))
            }
        };
        let catches = |text: &ProgramText| match text {
            ProgramText::Name(text) => {
                text.accepts(base)
                    || subject.real_base.is_some_and(|real| {
                        text.accepts(real)
                            || matches!(text, TextPattern::Literal(name) if programs.is_named(file, name))
                    })
            }
            ProgramText::Path { text, .. } => {
                text.accepts(given) || subject.places(programs).are_caught_by(text, file, programs)
            }
        };
        // It may be relative to a directory that nobody knows.
        let may_catch = |text: &ProgramText| match text {
            ProgramText::Name(_) => false,
            ProgramText::Path { text, .. } => {
                *subject.place == LineCwd::Unknown
                    && given.starts_with('/')
                    && subject.places(programs).may_be_caught_by(text)
            }
        };
        match self.decision {
            Decision::Allow => Match::of(texts.iter().any(allows)),
            Decision::Ask | Decision::Deny if texts.iter().any(catches) => Match::Yes,
            // It may be a link to anything.
            Decision::Ask | Decision::Deny if *file == Resolved::Unknown => Match::Perhaps,
            Decision::Ask | Decision::Deny if texts.iter().any(may_catch) => Match::Perhaps,
            Decision::Ask | Decision::Deny => Match::No,
        }
    }

    fn without_skipped(&self, arguments: &[Word]) -> Vec<Word> {
        let mut kept = Vec::with_capacity(arguments.len());
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.literal() {
                Some("--") => {
                    kept.push(word.clone());
                    kept.extend(words.by_ref().cloned());
                }
                Some(text) if self.skip.flags.iter().any(|flag| flag == text) => {}
                Some(text) if self.skip.with_value.iter().any(|flag| flag == text) => {
                    // A value that is not known may turn out to be several words.
                    kept.extend(words.next().filter(|value| value.literal().is_none()).cloned());
                }
                Some(text)
                    if self.skip.with_value.iter().any(|flag| {
                        text.strip_prefix(flag.as_str()).is_some_and(|rest| {
                            rest.starts_with('=') || (!flag.starts_with("--") && !rest.is_empty())
                        })
                    }) => {}
                _ => kept.push(word.clone()),
            }
        }
        kept
    }
}
