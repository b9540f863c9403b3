//! What interprets a script that a request names: the kernel executes that in its place.
//!
//! It is evaluated with the arguments that the kernel gives it. Rules that deny or ask hold for it, and a rule that allows the script
//! allows it. The exec gate does the same for what processes execute; nobody else looks at what the gateway itself has executed, or
//! at what a line names under a profile without a gate.

use super::{
    super::{
        interpreter::{Interpreters, interpreted_argv, with_arguments},
        kinds,
        program::{self, Resolved},
        rule::resolve_place,
        shell::{LineCwd, OpaqueReason, Word},
        verdict::{MAX_UNITS, Unseen},
    },
    CommandSource, Evaluator, Scripts,
};

impl Evaluator<'_> {
    /// Evaluates what interprets a file that is a script.
    pub(super) fn interpreters(
        &mut self,
        words: &[Word],
        file: &Resolved,
        place: &LineCwd,
        within: &mut Vec<String>,
    ) {
        let around = std::mem::replace(&mut self.is_interpreting, true);
        if self.units.len() >= MAX_UNITS {
            self.hide_words(words, OpaqueReason::TooMany, within);
        } else {
            self.interpreters_of(words, file, place, within);
        }
        self.is_interpreting = around;
    }

    fn interpreters_of(
        &mut self,
        words: &[Word],
        file: &Resolved,
        place: &LineCwd,
        within: &mut Vec<String>,
    ) {
        let Some((command, arguments)) = words.split_first() else { return };
        let Some(given) = command.literal() else { return };
        let found = match file {
            Resolved::File(found) => found,
            // A script may have any interpreter, and any first argument for it.
            Resolved::Unknown => return self.hide_words(words, OpaqueReason::Interpreter, within),
            Resolved::Builtin | Resolved::Missing => return,
        };
        let own = &self.context.request.cwd;
        let cwd = match place {
            LineCwd::Start => Some(own.clone()),
            LineCwd::After(_) | LineCwd::Unknown => resolve_place(own, place),
        };
        let cwd = cwd.unwrap_or_else(|| own.clone());
        let Interpreters { chain, may_go_on } = self.context.resolver.interpreters(found, &cwd);
        let lines =
            chain.iter().map(|one| (Word::Literal(one.path_text()), one.argument_text().map(Word::Literal)));
        let script = Word::Literal(program::script_name(given, found).to_owned());
        let last = interpreted_argv(script, arguments.iter().cloned(), lines);
        for (interpreter, argv) in with_arguments(&chain, &last) {
            let program = (&*interpreter.path_text(), interpreter.file.clone());
            self.program(argv, program, Scripts::Known, place, CommandSource::FromArgv, within);
        }
        if may_go_on {
            self.hide_words(words, OpaqueReason::Interpreter, within);
        }
    }

    /// Whether what an interpreter hides is what the script does: who allows the script allows that. The shell of a program that is
    /// many may run the others without an exec, where the gate counts on there being one.
    pub(super) fn is_the_scripts_own(&self, name: &str, reason: OpaqueReason, within: &[String]) -> bool {
        let is_judged_otherwise = self.context.unseen == Unseen::JudgedAtExec
            && within.iter().any(|outer| kinds::runs_in_place(outer));
        !is_judged_otherwise && (kinds::is_shell(name) || kinds::is_taken_on_trust(name, reason))
    }
}
