//! Redacts audit records: secret values, or all that the caller wrote for a command. Pure.

use std::borrow::Cow;

use crate::{
    journal::{Record, RecordedExec},
    masking::{Masker, StreamEnd, StreamStart},
};

/// Takes secret values out of a record of a command.
pub(crate) fn redact_secrets(record: &mut Record, masker: &Masker) {
    match record {
        Record::Decision(decision) => {
            mask_texts(&mut decision.command.argv, &mut decision.command.cut_bytes, masker);
            mask_texts(&mut decision.judged.commands, &mut decision.judged.cut_bytes, masker);
            mask_text(&mut decision.reason, masker);
            mask_text(&mut decision.cwd, masker);
        }
        Record::Spawn(spawn) => mask_texts(&mut spawn.command.argv, &mut spawn.command.cut_bytes, masker),
        // May name the program.
        Record::SpawnFailed(failed) => mask_text(&mut failed.problem, masker),
        Record::ExecDenied(denied) => {
            mask_exec(&mut denied.exec, masker);
            mask_text(&mut denied.reason, masker);
        }
        Record::ExecAsked(asked) => mask_exec(&mut asked.exec, masker),
        Record::Connection(connection) => {
            mask_text(&mut connection.host, masker);
            mask_text(&mut connection.reason, masker);
            mask_text(&mut connection.path, masker);
        }
        Record::ConnectionEnded(ended) => mask_text(&mut ended.host, masker),
        Record::ExecsAllowed(allowed) => {
            allowed.execs.iter_mut().for_each(|one| mask_exec(&mut one.exec, masker));
        }
        // The others hold nothing that a caller or a command wrote.
        _ => {}
    }
}

/// From so many bytes on, the last argument of an exec may have been cut.
const CUT_ARGUMENTS_MIN_BYTES: usize = 2_048;

/// What stands where a line is not written.
pub(crate) const REDACTED: &str = "(not written: a secret that may be in it cannot be read)";

/// Takes everything out of a record of a command that a caller wrote: which request it was, the digest says.
pub(crate) fn redact_all(record: &mut Record) {
    match record {
        Record::Decision(decision) => {
            redact_texts(&mut decision.command.argv, &mut decision.command.cut_bytes);
            redact_texts(&mut decision.judged.commands, &mut decision.judged.cut_bytes);
            decision.reason = REDACTED.to_owned();
            decision.cwd = REDACTED.to_owned();
        }
        Record::Spawn(spawn) => redact_texts(&mut spawn.command.argv, &mut spawn.command.cut_bytes),
        Record::SpawnFailed(failed) => failed.problem = REDACTED.to_owned(),
        Record::ExecDenied(denied) => {
            redact_exec(&mut denied.exec);
            denied.reason = REDACTED.to_owned();
        }
        Record::ExecAsked(asked) => redact_exec(&mut asked.exec),
        Record::Connection(connection) => {
            (connection.host, connection.reason) = (REDACTED.to_owned(), REDACTED.to_owned());
            connection.path = REDACTED.to_owned();
        }
        Record::ConnectionEnded(ended) => ended.host = REDACTED.to_owned(),
        Record::ExecsAllowed(allowed) => {
            allowed.execs.iter_mut().for_each(|one| redact_exec(&mut one.exec));
        }
        // The others hold nothing that a caller wrote for a command.
        _ => {}
    }
}

fn mask_exec(exec: &mut RecordedExec, masker: &Masker) {
    // The gate may have cut the last argument.
    let is_cut =
        exec.argv_omitted > 0 || exec.argv.iter().map(String::len).sum::<usize>() >= CUT_ARGUMENTS_MIN_BYTES;
    let mut cut_bytes = u64::from(is_cut);
    mask_texts(&mut exec.argv, &mut cut_bytes, masker);
    let texts = [&mut exec.file, &mut exec.cwd].into_iter();
    texts.chain(&mut exec.path).chain(&mut exec.interpreters).for_each(|text| mask_text(text, masker));
}

fn redact_exec(exec: &mut RecordedExec) {
    exec.argv_omitted = exec.argv_omitted.saturating_add(u32::try_from(exec.argv.len()).unwrap_or(u32::MAX));
    exec.argv.clear();
    exec.interpreters.clear();
    exec.path = None;
    (exec.file, exec.cwd) = (REDACTED.to_owned(), REDACTED.to_owned());
}

fn redact_texts(texts: &mut Vec<String>, cut_bytes: &mut u64) {
    *cut_bytes += texts.drain(..).map(|text| text.len() as u64 + 1).sum::<u64>();
}

fn mask_texts(texts: &mut [String], cut_bytes: &mut u64, masker: &Masker) {
    if *cut_bytes > 0
        && let Some(last) = texts.last_mut()
    {
        // What was cut off may have been the rest of a secret: then its beginning goes, too.
        let mut certain =
            masker.mask_in_place(&mut last.clone().into_bytes(), StreamStart::Whole, StreamEnd::MayContinue);
        while !last.is_char_boundary(certain) {
            certain -= 1;
        }
        *cut_bytes += (last.len() - certain) as u64;
        last.truncate(certain);
    }
    texts.iter_mut().for_each(|text| mask_text(text, masker));
}

fn mask_text(text: &mut String, masker: &Masker) {
    if let Cow::Owned(masked) = masker.mask_text(text) {
        *text = masked;
    }
}

#[cfg(test)]
mod tests;
