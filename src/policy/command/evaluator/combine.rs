//! Asks the rules about one command, and combines the decisions on all commands into the verdict.
//!
//! A denial beats a question beats a permission, whatever the order of rules; nothing is decided here by what a program is.

use super::{
    super::{
        effects::{self, AffectedCommand, OwnWork},
        kinds,
        program::Resolved,
        rule::{CommandRole, Decision, Effects, Rule, RuleSubject},
        shell::{self, LineCwd, OpaqueReason, Word},
        verdict::{DecisionReason, Doubt, RuleAnswers, RuleVerdict, Unit, Unseen, cause_of},
    },
    Evaluator, InputForm, RuleAnswer,
};

impl Evaluator<'_> {
    /// Asks every rule about one command.
    pub(super) fn apply_rules(
        &mut self,
        words: &[Word],
        file: Resolved,
        is_itself: bool,
        place: &LineCwd,
        within: &[String],
        otherwise: Option<DecisionReason>,
    ) -> RuleAnswer {
        let subject = RuleSubject::of(words, &file, is_itself, place, self.context.request);
        let role = self.role(words, within);
        let unseen = unseen_part(words, &file, place);
        let doubt = match self.waits_for_exec(&file, role, within) && unseen.is_some() {
            true => Doubt::Waits,
            false => Doubt::Counts,
        };
        // What a command may also be is not permitted, and needs no permission.
        let needs_none = self.is_other_reading || self.is_interpreting;
        let rules = self.context.rules.iter().filter(|rule| !needs_none || rule.decision != Decision::Allow);
        let otherwise = match (self.is_other_reading, self.is_interpreting) {
            (true, _) => Some(DecisionReason::Transparent),
            (false, true) => Some(DecisionReason::Interprets),
            (false, false) => otherwise,
        };
        // What a request has executed by way of a script is executed by the request, and is not what it names.
        let counted = if self.is_interpreting { CommandRole::Within } else { role };
        let answers = RuleAnswers::of(rules, &subject, counted, self.context.resolver, doubt);
        let work = match &otherwise {
            // The script does its own work.
            Some(DecisionReason::Interprets) => OwnWork::None { may_show_variables: false },
            Some(DecisionReason::Transparent) => OwnWork::of_transparent(words, file == Resolved::Builtin),
            _ => OwnWork::Some,
        };
        self.affect(work, &answers.effective);
        self.starts_any.extend(answers.starts_any.map(str::to_owned));
        self.observed.extend(answers.observed);
        let may_run = otherwise.is_some() || answers.may_be_allowed;
        let (decision, reason, answered) = match (answers.strictest, answers.possible_deny, otherwise) {
            (Some((Decision::Allow, _)), Some(doubt), _) | (None, Some(doubt), Some(_)) => {
                (Decision::Ask, DecisionReason::Rule(doubt.id.clone()), RuleAnswer::Otherwise)
            }
            (Some((Decision::Allow, rule)), None, _) if !rule.is_about_everything() => {
                (Decision::Allow, DecisionReason::Rule(rule.id.clone()), RuleAnswer::AllowedByName)
            }
            (Some((decision, rule)), _, _) => {
                (decision, DecisionReason::Rule(rule.id.clone()), RuleAnswer::Otherwise)
            }
            (None, None, Some(DecisionReason::Transparent)) => {
                (Decision::Allow, DecisionReason::Transparent, RuleAnswer::Otherwise)
            }
            (None, _, _) if doubt == Doubt::Waits && may_run => {
                let reason = unseen.unwrap_or(OpaqueReason::Expansion);
                (Decision::Allow, DecisionReason::AtExec(reason), RuleAnswer::Otherwise)
            }
            (None, None, Some(DecisionReason::Opaque(reason))) => {
                (Decision::Ask, DecisionReason::Opaque(reason), RuleAnswer::Otherwise)
            }
            (None, None, Some(reason)) => (Decision::Allow, reason, RuleAnswer::Otherwise),
            (None, _, None) => (Decision::Deny, DecisionReason::Default, RuleAnswer::Otherwise),
        };
        let matched = answers.matched;
        self.units.push(Unit {
            words: words.to_vec(),
            file,
            place: place.clone(),
            within: within.to_vec(),
            decision,
            reason,
            matched,
        });
        answered
    }

    /// Keeps the effects on the command that becomes the next unit.
    fn affect(&mut self, work: OwnWork, rules: &[&Rule]) {
        let mut on = self.around.last().cloned().unwrap_or_default();
        if let Err(conflict) = on.add(rules.iter().copied()) {
            self.conflict.get_or_insert(conflict);
        }
        self.affected.push(AffectedCommand { unit: self.units.len(), redirection: None, work, on });
    }

    fn role(&self, words: &[Word], within: &[String]) -> CommandRole {
        let is_first = self.is_launched(within) && words.first().is_some_and(|word| word.literal().is_some());
        if is_first { CommandRole::First } else { CommandRole::Within }
    }

    /// Whether the gateway itself has it executed, which no gate judges.
    fn is_launched(&self, within: &[String]) -> bool {
        self.form == InputForm::Request && within.iter().all(|outer| kinds::runs_in_place(outer))
    }

    /// Whether the command is executed by a process that a gate judges. The first command is not: it is judged here. What a multi-call
    /// program or a loader runs need not be executed, and a builtin is not.
    fn waits_for_exec(&self, file: &Resolved, role: CommandRole, within: &[String]) -> bool {
        self.context.unseen == Unseen::JudgedAtExec
            && role == CommandRole::Within
            && !self.is_launched(within)
            && *file != Resolved::Builtin
            && !within.iter().any(|outer| kinds::runs_in_place(outer))
    }

    pub(super) fn hide_words(&mut self, words: &[Word], reason: OpaqueReason, within: &[String]) {
        self.hide(&shell::print(words), reason, within);
    }

    /// Evaluates a part that can't be seen, as what it is: any command whatever.
    pub(super) fn hide(&mut self, text: &str, reason: OpaqueReason, within: &[String]) {
        let words = [Word::Opaque { text: text.to_owned(), reason }];
        self.apply_rules(
            &words,
            Resolved::Unknown,
            false,
            &LineCwd::Unknown,
            within,
            Some(DecisionReason::Opaque(reason)),
        );
    }

    pub(super) fn combine(mut self) -> RuleVerdict {
        let text =
            |unit: usize| self.units.get(unit).map(|unit| shell::print(&unit.words)).unwrap_or_default();
        let effects = match self.conflict.take() {
            Some(conflict) => Err(conflict),
            None => effects::of_request(&self.affected, &text, self.context.own_profile),
        };
        let effects = effects.unwrap_or_else(|conflict| {
            self.units.push(Unit {
                words: Vec::new(),
                file: Resolved::Unknown,
                place: LineCwd::Unknown,
                within: Vec::new(),
                decision: Decision::Deny,
                reason: DecisionReason::Conflict(conflict),
                matched: Vec::new(),
            });
            Effects::default()
        });
        // Nothing to run is nothing to allow. A request runs something: the shell, if its line has no command.
        let decision = self.units.iter().map(|unit| unit.decision).max().unwrap_or(Decision::Deny);
        self.observed.sort();
        self.observed.dedup();
        let starts_any = self.starts_any.into_iter().min().filter(|_| decision != Decision::Deny);
        let cause_rule = cause_of(&self.units, decision).and_then(|unit| match &unit.reason {
            DecisionReason::Rule(id) => Some(id.clone()),
            _ => None,
        });
        RuleVerdict { decision, units: self.units, cause_rule, effects, starts_any, observed: self.observed }
    }
}

/// Why a command can't be known before it is executed; `None` where it can.
fn unseen_part(words: &[Word], file: &Resolved, place: &LineCwd) -> Option<OpaqueReason> {
    let opaque = words.iter().find_map(|word| match word {
        Word::Opaque { reason, .. } => Some(*reason),
        Word::Literal(_) => None,
    });
    let is_elsewhere = *file == Resolved::Unknown || *place == LineCwd::Unknown;
    opaque.or(is_elsewhere.then_some(OpaqueReason::UnknownCwd))
}
