//! A person's approval: what a rule with the decision `ask` asks, the grant that a person gives, and what the grant covers when the
//! commands of the request are executed.
//!
//! A grant is for one request in its normal form, one principal and one generation of the policy, and is used up by the decision. Storing
//! questions, showing them and waiting for answers is done by the module `approval` of the gateway.

use std::{collections::BTreeMap, fmt};

use bytes::Bytes;

use crate::{
    byte_text,
    command::{
        program::{DirectoryId, ProgramResolver, Resolved},
        rule::{Decision, RequestContext, base_name, resolve_place},
        shell::{self, Word},
        verdict::{DecisionReason, RuleVerdict, Unit},
    },
    set::{Digest, PolicySet},
    variables,
};

/// The longest part of a command that an error text repeats.
pub(super) const COMMAND_SHOWN_BYTES: usize = 384;

/// A command of a request that a rule asks about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AskedCommand {
    /// In its normal form.
    pub command: String,
    /// The rule that asks; "opaque" where it is a part that cannot be seen.
    pub rule: String,
    /// The rule's own reason, verbatim; or why the command cannot be seen.
    pub reason: Option<String>,
}

/// What a person has to decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalQuestion {
    /// The rule that asks; "opaque" where it is a part that cannot be seen.
    pub rule: String,
    /// The command of the request that the rule is about, in its normal form.
    pub command: String,
    /// The rule's own reason, verbatim; or why the command cannot be seen.
    pub reason: Option<String>,
    /// What else of the request rules ask about: the answer is for all of it.
    pub others: Vec<AskedCommand>,
    /// The digest of the request.
    pub digest: Digest,
    /// The generation of the policy.
    pub generation: u64,
}

impl ApprovalQuestion {
    pub(super) fn from_verdict(
        policy: &PolicySet,
        verdict: &RuleVerdict,
        digest: Digest,
        generation: u64,
    ) -> Self {
        let asked = |unit: &Unit| AskedCommand::of(policy, unit);
        let mut others: Vec<AskedCommand> = Vec::new();
        for other in verdict.units.iter().filter(|unit| unit.decision == Decision::Ask).map(asked) {
            if !others.contains(&other) {
                others.push(other);
            }
        }
        let first = verdict.cause().map(asked).unwrap_or_default();
        others.retain(|other| *other != first);
        let AskedCommand { command, rule, reason } = first;
        Self { rule, command, reason, others, digest, generation }
    }
}

impl AskedCommand {
    fn of(policy: &PolicySet, unit: &Unit) -> Self {
        let (rule, reason) = match &unit.reason {
            DecisionReason::Rule(id) => {
                let rule = policy.rules().iter().find(|rule| rule.id == *id);
                (id.clone(), rule.and_then(|rule| rule.reason.clone()))
            }
            DecisionReason::Opaque(reason) => ("opaque".to_owned(), Some(reason.to_string())),
            DecisionReason::Default
            | DecisionReason::Transparent
            | DecisionReason::Interprets
            | DecisionReason::AtExec(_)
            | DecisionReason::Started(_)
            | DecisionReason::Variable(_)
            | DecisionReason::Conflict(..) => ("default".to_owned(), None),
        };
        Self { command: shell::print(&unit.words), rule, reason }
    }
}

impl fmt::Display for ApprovalQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, command, reason, others, .. } = self;
        let command = crate::printable::bounded(command, COMMAND_SHOWN_BYTES);
        match reason {
            Some(reason) => write!(f, "{reason} (rule {rule:?} asks about: {command})")?,
            None => write!(f, "rule {rule:?} asks about: {command}")?,
        }
        match others.len() {
            0 => Ok(()),
            count => write!(f, ", and about {count} more of this request"),
        }
    }
}

/// A person's approval of one request. It is not `Clone`, because it counts once.
#[derive(Debug)]
#[must_use = "a grant that no decision sees allows nothing"]
pub struct ApprovalGrant {
    digest: Digest,
    generation: u64,
    principal: String,
}

impl ApprovalGrant {
    /// Approves the request of `principal` that `question` is about.
    pub fn issue(question: &ApprovalQuestion, principal: String) -> Self {
        Self { digest: question.digest, generation: question.generation, principal }
    }

    pub(super) fn covers(&self, digest: Digest, generation: u64, principal: &str) -> bool {
        self.digest == digest && self.generation == generation && self.principal == principal
    }
}

/// A command of a request that a rule asked about and a person approved. Within that request the rule does not ask again about this file with
/// these arguments in this directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovedCommand {
    /// The rule.
    pub rule: String,
    /// Its words, the program first.
    pub argv: Vec<String>,
    /// What its program was.
    pub file: ApprovedFile,
    /// Where it was to run.
    pub directory: DirectoryId,
    /// The variables that the rule reads, and those that decide which code runs ([`decides_code`]).
    pub env: BTreeMap<String, String>,
}

/// The program of an approved command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovedFile {
    /// This file, as it was.
    Exactly {
        /// `st_dev` of stat(2).
        device: u64,
        /// `st_ino` of stat(2).
        inode: u64,
        /// `st_ctim` of stat(2) in nanoseconds.
        changed_nanos: i64,
    },
    /// A builtin of the shell that reads the line: if a file is executed in its place, the one that the trusted path has under the name.
    OfTrustedPath,
}

/// A command that is executed, as far as approvals are about it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExecutedCommand<'a> {
    pub(super) words: &'a [Word],
    pub(super) file: &'a Resolved,
    /// Whether the file is what the trusted path gives this name.
    pub(super) is_itself: bool,
    /// Where it runs; `None`: it cannot be seen.
    pub(super) directory: Option<DirectoryId>,
    pub(super) context: &'a RequestContext,
}

/// Whether a variable decides which program, file or configuration a command means. A shell sets the one in which it remembers where it was.
fn decides_code(name: &str, value: &str) -> bool {
    name != "OLDPWD" && variables::matching(name, Some(value)).next().is_some()
}

impl ApprovedCommand {
    /// The same, for a command that begins in this environment (`NAME=value`).
    pub(super) fn beginning_in(&self, env: &[Bytes]) -> Self {
        let text = |bytes: &[u8]| byte_text::from_bytes(bytes);
        let entries = env.iter().filter_map(|entry| {
            let end = entry.iter().position(|byte| *byte == b'=')?;
            Some((text(&entry[..end]), text(&entry[end + 1..])))
        });
        let mut approved = self.clone();
        approved.env.extend(entries.filter(|(name, value)| decides_code(name, value)));
        approved
    }

    /// What is approved with a request. Not among it is what a person has not seen: a command with words that are not known before it runs,
    /// of a file that is not there yet, or in a directory that is not known.
    pub(super) fn all_of(
        policy: &PolicySet,
        units: &[Unit],
        context: &RequestContext,
        programs: &dyn ProgramResolver,
    ) -> Vec<Self> {
        let asked = units.iter().filter(|unit| unit.decision == Decision::Ask);
        let approved = asked.filter_map(|unit| {
            let DecisionReason::Rule(rule) = &unit.reason else { return None };
            let words = unit.words.iter().map(|word| word.literal().map(str::to_owned));
            let file = match &unit.file {
                Resolved::File(file) => ApprovedFile::Exactly {
                    device: file.device,
                    inode: file.inode,
                    changed_nanos: file.changed_nanos,
                },
                Resolved::Builtin => ApprovedFile::OfTrustedPath,
                Resolved::Missing | Resolved::Unknown => return None,
            };
            let place = resolve_place(&context.cwd, &unit.place)?;
            let directory = programs.directories(&place)?.first()?.id;
            let read = policy.rules().iter().filter(|one| one.id == *rule).flat_map(|one| one.variables());
            let env = read.filter_map(|name| Some((name.to_owned(), context.env.get(name)?.clone())));
            Some(Self {
                rule: rule.clone(),
                argv: words.collect::<Option<_>>()?,
                file,
                directory,
                env: env.collect(),
            })
        });
        approved.collect()
    }

    /// Whether this rule has been answered for exactly this. Bytes that are no UTF-8 stand as the same character in all words: who has seen
    /// one has not seen the others.
    pub(super) fn covers(&self, rule: &str, executed: ExecutedCommand<'_>) -> bool {
        let ExecutedCommand { words, file, is_itself, directory, context } = executed;
        let (Some((given, arguments)), Some((program, rest))) =
            (words.split_first(), self.argv.split_first())
        else {
            return false;
        };
        let is_exact =
            |word: &Word| word.literal().is_some_and(|text| !text.contains(char::REPLACEMENT_CHARACTER));
        let is_file = match (self.file, file) {
            (ApprovedFile::Exactly { device, inode, changed_nanos }, Resolved::File(file)) => {
                (file.device, file.inode, file.changed_nanos) == (device, inode, changed_nanos)
            }
            (ApprovedFile::OfTrustedPath, Resolved::File(_)) => is_itself,
            (_, Resolved::Builtin | Resolved::Missing | Resolved::Unknown) => false,
        };
        let has_value = |(name, value): (&String, &String)| {
            context.env.get(name) == Some(value) && !context.further_env.contains_key(name)
        };
        // Among several values of one name nobody knows which one a program takes.
        let is_changed = context.env.iter().any(|(name, value)| {
            let further = context.further_env.get(name).into_iter().flatten();
            self.env.get(name) != Some(value) && decides_code(name, value)
                || further.into_iter().any(|value| decides_code(name, value))
        });
        self.rule == rule
            && is_file
            && directory == Some(self.directory)
            && self.env.iter().all(has_value)
            && !is_changed
            && words.iter().all(is_exact)
            && given.literal().map(base_name) == Some(base_name(program))
            && arguments.iter().map(Word::literal).eq(rest.iter().map(|word| Some(word.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::command::{
            program::{Directory, FileId, PathStability},
            shell::{LineCwd, OpaqueReason},
        },
        *,
    };

    fn literals(words: &[&str]) -> Vec<Word> {
        words.iter().map(|word| Word::Literal((*word).to_owned())).collect()
    }

    fn file(inode: u64, changed_nanos: i64) -> Resolved {
        let (path, lookup_path) = ("/w/touch".to_owned(), "/w/touch".to_owned());
        let stability = PathStability::Changeable;
        Resolved::File(FileId { path, device: 1, inode, changed_nanos, lookup_path, stability })
    }

    /// One directory, and nothing else.
    struct Host;

    impl ProgramResolver for Host {
        fn find_in_path(&self, _: &str) -> Resolved {
            Resolved::Missing
        }

        fn resolve_path(&self, _: &str, _: &str) -> Resolved {
            Resolved::Missing
        }

        fn directories(&self, path: &str) -> Option<Vec<Directory>> {
            let id = DirectoryId { device: 1, inode: 7 };
            Some(if path == "/w" {
                vec![Directory { path: path.to_owned(), id, changed_nanos: 0 }]
            } else {
                Vec::new()
            })
        }
    }

    #[test]
    fn only_what_a_rule_asked_about_and_a_person_has_seen_in_full_is_approved() {
        let rule = || DecisionReason::Rule("careful".to_owned());
        let unit = |words, file, place, decision, reason| Unit {
            words,
            file,
            place,
            within: Vec::new(),
            decision,
            reason,
            matched: Vec::new(),
        };
        let here = || LineCwd::Start;
        let there = LineCwd::After("elsewhere".to_owned());
        let unseen = Word::Opaque { text: "$X".to_owned(), reason: OpaqueReason::Expansion };
        let opaque = DecisionReason::Opaque(OpaqueReason::Expansion);
        let (ask, found) = (Decision::Ask, || file(2, 3));
        let units = [
            unit(literals(&["touch", "a"]), found(), here(), ask, rule()),
            unit(literals(&["touch", "b"]), found(), here(), Decision::Allow, rule()),
            unit([literals(&["touch"]), vec![unseen]].concat(), found(), here(), ask, rule()),
            unit(literals(&["touch", "c"]), found(), here(), ask, opaque),
            unit(literals(&["touch", "d"]), Resolved::Missing, here(), ask, rule()),
            unit(literals(&["touch", "e"]), found(), there, ask, rule()),
        ];
        let policy = PolicySet::load(&[(
            "p.toml",
            "[[rule]]\nid = \"careful\"\ndecision = \"ask\"\nargv = [\"touch\", \"**\"]\nwhen = { env = { STAGE = \"*\" } }\n",
        )]);
        let env = BTreeMap::from([("STAGE".to_owned(), "dev".to_owned()), ("X".to_owned(), String::new())]);
        let context = RequestContext { cwd: "/w".to_owned(), env, ..RequestContext::default() };
        let approved = ApprovedCommand::all_of(&policy.unwrap(), &units, &context, &Host);
        let [only] = &approved[..] else { panic!("{approved:?}") };
        assert_eq!((only.rule.as_str(), &only.argv[..]), ("careful", &["touch".to_owned(), "a".into()][..]));
        assert_eq!(only.env, BTreeMap::from([("STAGE".to_owned(), "dev".to_owned())]));

        let covers = |rule: &str, words: &[&str], file: Resolved, inode, context: &RequestContext| {
            let directory = Some(DirectoryId { device: 1, inode });
            let (words, file) = (&literals(words)[..], &file);
            only.covers(rule, ExecutedCommand { words, file, is_itself: false, directory, context })
        };
        let words = &["/usr/bin/touch", "a"][..];
        assert!(covers("careful", words, found(), 7, &context));
        assert!(!covers("other", words, found(), 7, &context), "another rule");
        assert!(!covers("careful", words, file(3, 3), 7, &context), "another file of that name");
        assert!(!covers("careful", words, file(2, 4), 7, &context), "it was written to");
        assert!(!covers("careful", words, Resolved::Unknown, 7, &context));
        assert!(!covers("careful", words, found(), 8, &context), "another directory");
        for words in [&["touch", "b"][..], &["touch", "a", "b"], &["touch"], &["rm", "a"], &[]] {
            assert!(!covers("careful", words, found(), 7, &context), "{words:?}");
        }
        let env = BTreeMap::from([("STAGE".to_owned(), "prod".to_owned())]);
        assert!(!covers("careful", words, found(), 7, &RequestContext { env, ..context.clone() }));
        let further_env = BTreeMap::from([("STAGE".to_owned(), vec!["prod".to_owned()])]);
        assert!(!covers("careful", words, found(), 7, &RequestContext { further_env, ..context.clone() }));

        let lossy = ApprovedCommand { argv: vec!["rm".into(), "f-\u{fffd}".into()], ..only.clone() };
        let words = &literals(&["rm", "f-\u{fffd}"])[..];
        let (directory, file) = (Some(only.directory), &found());
        let executed = ExecutedCommand { words, file, is_itself: true, directory, context: &context };
        assert!(!lossy.covers("careful", executed), "it may be another byte");
    }
}
