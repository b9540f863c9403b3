//! Signals by name: "SIGINT" or "INT", "SIGRTMIN+3". Pure.

use nix::sys::signal::Signal;

/// The number of a signal's name, with or without "SIG".
pub fn number(name: &str) -> Option<i32> {
    let bare = name.strip_prefix("SIG").unwrap_or(name);
    if let Some(above) = bare.strip_prefix("RTMIN") {
        return real_time(above);
    }
    format!("SIG{bare}").parse::<Signal>().ok().map(|signal| signal as i32)
}

fn real_time(above: &str) -> Option<i32> {
    let offset: i32 = match above.strip_prefix('+') {
        Some(digits) => digits.parse().ok().filter(|offset| *offset >= 0)?,
        None if above.is_empty() => 0,
        None => return None,
    };
    libc::SIGRTMIN().checked_add(offset).filter(|number| *number <= libc::SIGRTMAX())
}

/// The full name of a signal's number.
pub fn name(number: i32) -> String {
    match Signal::try_from(number) {
        Ok(signal) => signal.as_str().to_owned(),
        Err(_) if number == libc::SIGRTMIN() => "SIGRTMIN".to_owned(),
        Err(_) => format!("SIGRTMIN+{}", number - libc::SIGRTMIN()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_belong_together() {
        assert_eq!(number("INT"), Some(libc::SIGINT));
        assert_eq!(number("SIGINT"), Some(libc::SIGINT));
        assert_eq!(name(libc::SIGKILL), "SIGKILL");
        let real_time = libc::SIGRTMIN() + 3;
        assert_eq!(number("SIGRTMIN+3"), Some(real_time));
        assert_eq!(name(real_time), "SIGRTMIN+3");
        for bad in ["", "SIG", "int", "SIGNOPE", "9", "SIGRTMIN+99", "RTMIN-1", "SIGSIGINT"] {
            assert_eq!(number(bad), None, "{bad}");
        }
    }
}
