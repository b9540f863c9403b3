//! What runs a script: its interpreters, and the arguments that the kernel gives them (fs/binfmt_script.c, `load_script`).
//!
//! Pure. An interpreter's path and argument are bytes, as the kernel has them; what rules compare is text, in which bytes that are
//! not UTF-8 are replaced.

pub use super::program::{Interpreter, Interpreters};

/// The arguments of the last interpreter of a script, which is executed in its place. `script`: the name that the kernel has for it;
/// `arguments`: its own, without `argv[0]`, which is dropped; `lines`: path and argument of each interpreter, that of the script first.
pub fn interpreted_argv<T>(
    script: T,
    arguments: impl IntoIterator<Item = T>,
    lines: impl DoubleEndedIterator<Item = (T, Option<T>)>,
) -> Vec<T> {
    let interpreters = lines.rev().flat_map(|(path, argument)| std::iter::once(path).chain(argument));
    interpreters.chain([script]).chain(arguments).collect()
}

/// Each interpreter with its own arguments, that of the script first. They are the end of what the last one gets (`last_argv`), since
/// each takes the place of the one before with its own words in front.
pub fn with_arguments<'a, T>(
    interpreters: &'a [Interpreter],
    last_argv: &'a [T],
) -> Vec<(&'a Interpreter, &'a [T])> {
    let mut start = 0;
    let mut found: Vec<_> = interpreters
        .iter()
        .rev()
        .map(|interpreter| {
            let own = last_argv.get(start..).unwrap_or_default();
            start += 1 + usize::from(interpreter.argument.is_some());
            (interpreter, own)
        })
        .collect();
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::{super::program::Resolved, *};

    #[test]
    fn each_interpreter_gets_its_words_the_script_and_the_arguments() {
        let interpreter = |path: &str, argument: Option<&str>| Interpreter {
            path: path.into(),
            argument: argument.map(Into::into),
            file: Resolved::Unknown,
        };
        let chain = [
            interpreter("/opt/i", Some("a b")),
            interpreter("/usr/bin/env", None),
            interpreter("/x", Some("-")),
        ];
        let lines = chain.iter().map(|one| (one.path_text(), one.argument_text()));
        let last = interpreted_argv("push".to_owned(), ["one".to_owned()], lines);
        assert_eq!(last.join(" "), "/x - /usr/bin/env /opt/i a b push one");
        let own: Vec<String> = with_arguments(&chain, &last).iter().map(|(_, argv)| argv.join(" ")).collect();
        assert_eq!(
            own,
            [
                "/opt/i a b push one",
                "/usr/bin/env /opt/i a b push one",
                "/x - /usr/bin/env /opt/i a b push one"
            ]
        );
        let none = std::iter::empty::<(String, Option<String>)>();
        assert_eq!(interpreted_argv("x".to_owned(), [], none), ["x"]);
        assert!(with_arguments::<String>(&[], &[]).is_empty());
    }
}
