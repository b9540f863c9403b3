//! docs/install.md: what the program prints for who installs it by hand. The packages are `tests/cli`'s.

use std::fs;

use crate::{
    shown::readme::{succeeded, text},
    support::Person,
};

#[test]
fn the_program_prints_its_man_pages_and_completions() {
    let person = Person::new();
    let pages = person.at("home/man");
    let line = "provost man DIR".replace("DIR", &pages.display().to_string());
    succeeded(&mut person.shell(&format!("mkdir -p {} && {line}", pages.display())));
    let run = fs::read_to_string(pages.join("provost-run.1")).expect("each command has its page");
    assert!(run.contains(".TH provost-run"), "{run}");
    let completions = text(&succeeded(&mut person.shell("provost completions bash")).stdout);
    person.write("completions", &completions);
    let asked = "source ./completions; COMP_WORDS=(provost ru); COMP_CWORD=1; _provost provost ru provost; \
                 echo \"${COMPREPLY[*]}\"";
    assert_eq!(text(&succeeded(&mut person.shell(asked)).stdout).trim(), "run", "as bash asks for them");
}
