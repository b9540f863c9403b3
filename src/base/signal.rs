//! Signals by name and by number: "SIGINT", "INT", "int", "SIGRTMIN+3", "2". Pure.
//!
//! One table in both directions, for every number that the kernel has. Real-time signals count from 34, as both C libraries' users
//! do: signal(7).

/// The number of SIGKILL.
pub const SIGKILL: i32 = 9;
/// What SIGRTMIN is for programs; 32 and 33 are the C library's own, and have no names.
const RTMIN: i32 = 34;
/// The last signal.
const RTMAX: i32 = 64;

/// The signals with names of their own, in the order of their numbers, from 1 on.
const NAMED: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// Other names of some of them.
const ALIASES: [(&str, &str); 3] = [("IOT", "ABRT"), ("CLD", "CHLD"), ("POLL", "IO")];

/// The number of a signal's name, in capitals or not, with or without "SIG", or of its number.
pub fn number(text: &str) -> Option<i32> {
    let text = text.to_ascii_uppercase();
    let bare = text.strip_prefix("SIG").unwrap_or(&text);
    if bare.starts_with(|first: char| first.is_ascii_digit()) {
        return digits(bare).filter(|number| (1..=RTMAX).contains(number));
    }
    let number = if let Some(above) = bare.strip_prefix("RTMIN") {
        RTMIN.checked_add(distance(above, '+')?)?
    } else if let Some(below) = bare.strip_prefix("RTMAX") {
        RTMAX.checked_sub(distance(below, '-')?)?
    } else {
        let alias = ALIASES.iter().find(|(alias, _)| *alias == bare);
        let name = alias.map_or(bare, |(_, name)| name);
        return NAMED.iter().position(|named| *named == name).and_then(|at| i32::try_from(at + 1).ok());
    };
    (RTMIN..=RTMAX).contains(&number).then_some(number)
}

/// The full name of a signal's number: the one that [`number`] gives the same number. One without a name is "SIG32".
pub fn name(number: i32) -> String {
    let named = usize::try_from(number).ok().and_then(|number| NAMED.get(number.checked_sub(1)?));
    match (named, number - RTMIN) {
        (Some(name), _) => format!("SIG{name}"),
        (None, 0) => "SIGRTMIN".to_owned(),
        (None, above) if (1..=RTMAX - RTMIN).contains(&above) => format!("SIGRTMIN+{above}"),
        (None, _) => format!("SIG{number}"),
    }
}

fn distance(text: &str, sign: char) -> Option<i32> {
    match text.strip_prefix(sign) {
        Some(distance) => digits(distance),
        None => text.is_empty().then_some(0),
    }
}

fn digits(text: &str) -> Option<i32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_name_that_means_it() {
        for signal in 1..=64 {
            let named = name(signal);
            assert_eq!(number(&named), Some(signal), "{named}");
            assert_eq!(number(&named.to_lowercase()), Some(signal), "{named}");
            assert_eq!(number(&named[3..]), Some(signal), "{named}");
            assert_eq!(number(&signal.to_string()), Some(signal));
        }
    }

    #[test]
    fn names_are_those_of_the_kernel() {
        for signal in nix::sys::signal::Signal::iterator() {
            assert_eq!(name(signal as i32), signal.as_str());
        }
        for (text, meant) in [
            ("INT", libc::SIGINT),
            ("sigint", libc::SIGINT),
            ("SigHup", libc::SIGHUP),
            ("IOT", libc::SIGABRT),
            ("SIGPOLL", libc::SIGIO),
            ("CLD", libc::SIGCHLD),
            ("RTMIN", 34),
            ("SIGRTMIN+3", 37),
            ("SIGRTMAX", 64),
            ("rtmax-3", 61),
            ("SIG33", 33),
            ("09", 9),
        ] {
            assert_eq!(number(text), Some(meant), "{text}");
        }
        assert_eq!((name(32), name(34), name(35)), ("SIG32".into(), "SIGRTMIN".into(), "SIGRTMIN+1".into()));
        assert_eq!(name(64), "SIGRTMIN+30");
        assert_eq!((name(0), name(65), name(-1)), ("SIG0".into(), "SIG65".into(), "SIG-1".into()));
    }

    #[test]
    fn what_is_no_signal_has_no_number() {
        for bad in [
            "",
            "SIG",
            "SIGNOPE",
            "0",
            "65",
            "-9",
            "+9",
            "9x",
            " 9",
            "SIGRTMIN+99",
            "SIGRTMIN+31",
            "RTMIN-1",
            "RTMIN+",
            "RTMIN++1",
            "RTMAX+1",
            "RTMAX-31",
            "SIGSIGINT",
            "99999999999",
            "RTMIN+99999999999",
        ] {
            assert_eq!(number(bad), None, "{bad}");
        }
    }
}
