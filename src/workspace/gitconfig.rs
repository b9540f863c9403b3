//! The grammar of git's configuration files, and which of their entries make git run code. Pure.
//!
//! Reads at least what git reads: what git would refuse whole may be read here in part, which finds too much and never
//! too little. Changes nothing, and follows no include.

use std::{collections::BTreeSet, sync::LazyLock};

use serde::Deserialize;

/// One entry: its name in small letters but for the subsection, and its value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigEntry {
    section: String,
    subsection: Option<String>,
    variable: String,
    /// Without quotes and escapes.
    pub value: String,
}

impl ConfigEntry {
    /// As people write it: `core.fsmonitor`.
    pub fn name(&self) -> String {
        let Self { section, subsection, variable, .. } = self;
        match subsection {
            Some(subsection) => format!("{section}.{subsection}.{variable}"),
            None => format!("{section}.{variable}"),
        }
    }
}

impl ConfigEntry {
    /// Whether the value is a path, and no command.
    pub fn is_path(&self) -> bool {
        ["path", "templatedir", "attributesfile", "hooks", "prog"]
            .iter()
            .any(|end| self.variable.ends_with(end))
    }
}

/// The kind of a configuration file, which decides which keys are dangerous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigKind {
    /// A repository's configuration.
    Repository,
    /// `.gitmodules`.
    Modules,
}

/// The entries of a file that make git run code.
pub fn dangerous(text: &[u8], flavour: ConfigKind) -> BTreeSet<ConfigEntry> {
    let rules = match flavour {
        ConfigKind::Repository => &GIT_CONFIG_RULES.key,
        ConfigKind::Modules => &GIT_CONFIG_RULES.modules,
    };
    let is_dangerous = |entry: &ConfigEntry| rules.iter().any(|rule| rule.matches(entry));
    ConfigParser::new(text).entries().into_iter().filter(is_dangerous).collect()
}

/// Where a repository says that its files are.
pub fn worktrees(text: &[u8]) -> BTreeSet<String> {
    let entries = ConfigParser::new(text).entries().into_iter();
    entries.filter(|entry| entry.name() == "core.worktree").map(|entry| entry.value).collect()
}

/// The last value of an entry with this name, in small letters.
pub fn last_value(text: &[u8], name: &str) -> Option<String> {
    let entries = ConfigParser::new(text).entries().into_iter();
    entries.filter(|entry| entry.name() == name).map(|entry| entry.value).next_back()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GitConfigRules {
    plain_commands: Vec<String>,
    running_options: Vec<String>,
    key: Vec<KeyRule>,
    modules: Vec<KeyRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyRule {
    name: String,
    #[serde(default)]
    starts: Vec<String>,
    #[serde(default)]
    safe: Vec<String>,
    #[serde(default)]
    below: Option<String>,
    /// An alias: dangerous but for a plain command with plain options.
    #[serde(default)]
    alias: bool,
    #[expect(dead_code, reason = "for who reads the data file")]
    reason: String,
}

static GIT_CONFIG_RULES: LazyLock<GitConfigRules> = LazyLock::new(|| {
    let text = include_str!("../../policies/data/git-config.toml");
    toml::from_str(text).expect("the data file is part of the build, and a test reads it")
});

impl KeyRule {
    fn matches(&self, entry: &ConfigEntry) -> bool {
        let value = entry.value.to_ascii_lowercase();
        let starts = |start: &String| value.trim_start().starts_with(start);
        self.names(entry)
            && !(self.alias && is_plain_alias(&entry.value))
            && (self.starts.is_empty() || self.starts.iter().any(starts))
            && !self.safe.contains(&value)
            && self.below.as_ref().is_none_or(|below| {
                entry.subsection.as_ref().is_some_and(|subsection| subsection.starts_with(below))
            })
    }

    fn names(&self, entry: &ConfigEntry) -> bool {
        // `section.*.variable`, `section.*`, or the name itself.
        match self.name.split_once(".*") {
            None => entry.name().eq_ignore_ascii_case(&self.name),
            Some((section, "")) => entry.section == section && entry.subsection.is_none(),
            Some((section, variable)) => {
                let name = entry.name().to_ascii_lowercase();
                entry.subsection.is_some()
                    && name.strip_prefix(section).is_some_and(|rest| {
                        let is_any = variable == ".*";
                        let is_it = rest.ends_with(variable) && rest.len() > variable.len();
                        rest.starts_with('.') && (is_any || is_it)
                    })
            }
        }
    }
}

/// Whether an alias stands for a command of git's that runs no other program by its options.
fn is_plain_alias(value: &str) -> bool {
    let value: String = value.chars().filter(|c| !matches!(c, '"' | '\'' | '\\')).collect();
    let mut words = value.split_whitespace();
    let is_plain_command =
        words.next().is_none_or(|first| GIT_CONFIG_RULES.plain_commands.iter().any(|one| one == first));
    is_plain_command
        && words.all(|word| match word.strip_prefix("--") {
            Some(long) => {
                let name = long.split('=').next().unwrap_or_default();
                // Options can be shortened.
                let is_running =
                    |option: &String| option.starts_with(name) || name.starts_with(option.as_str());
                name.is_empty() || !GIT_CONFIG_RULES.running_options.iter().any(is_running)
            }
            None if word.starts_with('-') => !word.contains(['x', 'O', 'c']),
            None => !word.contains("::"),
        })
}

struct ConfigParser<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> ConfigParser<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self { text: text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text), at: 0 }
    }

    fn entries(mut self) -> Vec<ConfigEntry> {
        let mut entries = Vec::new();
        let (mut section, mut subsection) = (String::new(), None);
        while let Some(byte) = self.peek() {
            match byte {
                b'#' | b';' => self.skip_line(),
                b'[' => (section, subsection) = self.header(),
                byte if byte.is_ascii_alphanumeric() => {
                    let (variable, value) = self.assignment();
                    let (section, subsection) = (section.clone(), subsection.clone());
                    entries.push(ConfigEntry { section, subsection, variable, value });
                }
                _ => self.at += 1,
            }
        }
        entries
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek();
        self.at += 1;
        // A line may end as on other systems.
        if byte == Some(b'\r') && self.peek() == Some(b'\n') {
            self.at += 1;
            return Some(b'\n');
        }
        byte
    }

    fn skip_line(&mut self) {
        while !matches!(self.next(), None | Some(b'\n')) {}
    }

    /// `[section]`, `[section.subsection]` or `[section "subsection"]`.
    fn header(&mut self) -> (String, Option<String>) {
        self.at += 1;
        let mut name = Vec::new();
        let mut quoted = None;
        while let Some(byte) = self.next() {
            match byte {
                b']' | b'\n' => break,
                b'"' => quoted = Some(self.quoted_subsection()),
                byte if byte.is_ascii_whitespace() => {}
                byte => name.push(byte.to_ascii_lowercase()),
            }
        }
        let name = String::from_utf8_lossy(&name).into_owned();
        match (quoted, name.split_once('.')) {
            (Some(subsection), _) => (name, Some(subsection)),
            (None, Some((section, subsection))) => (section.to_owned(), Some(subsection.to_owned())),
            (None, None) => (name, None),
        }
    }

    fn quoted_subsection(&mut self) -> String {
        let mut bytes = Vec::new();
        while let Some(byte) = self.next() {
            match byte {
                b'"' | b'\n' => break,
                b'\\' => bytes.extend(self.next()),
                byte => bytes.push(byte),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn assignment(&mut self) -> (String, String) {
        let mut name = Vec::new();
        while let Some(byte) = self.peek().filter(|byte| byte.is_ascii_alphanumeric() || *byte == b'-') {
            name.push(byte.to_ascii_lowercase());
            self.at += 1;
        }
        while self.peek().is_some_and(|byte| matches!(byte, b' ' | b'\t')) {
            self.at += 1;
        }
        let name = String::from_utf8_lossy(&name).into_owned();
        match self.peek() {
            Some(b'=') => {
                self.at += 1;
                (name, self.value())
            }
            // No value stands for true; what follows is the next entry's.
            _ => (name, "true".to_owned()),
        }
    }

    /// Without the spaces around it, but for those that are quoted or escaped.
    fn value(&mut self) -> String {
        let (mut bytes, mut is_quoted, mut is_comment) = (Vec::new(), false, false);
        // So much of it is no space that git would leave out.
        let mut kept = 0;
        while let Some(byte) = self.next() {
            match byte {
                b'\n' => break,
                _ if is_comment => continue,
                b'"' => is_quoted = !is_quoted,
                b'#' | b';' if !is_quoted => {
                    is_comment = true;
                    continue;
                }
                b'\\' => match self.next() {
                    // The line goes on.
                    Some(b'\n') | None => {}
                    Some(b'n') => bytes.push(b'\n'),
                    Some(b't') => bytes.push(b'\t'),
                    Some(b'b') => bytes.push(0x08),
                    Some(other) => bytes.push(other),
                },
                b' ' | b'\t' | b'\r' if !is_quoted => {
                    if !bytes.is_empty() {
                        bytes.push(byte);
                    }
                    continue;
                }
                byte => bytes.push(byte),
            }
            kept = bytes.len();
        }
        bytes.truncate(kept);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let entries = dangerous(text.as_bytes(), ConfigKind::Repository);
        entries.iter().map(|entry| format!("{}={}", entry.name(), entry.value)).collect()
    }

    #[test]
    fn what_runs_code_is_found_however_it_is_written() {
        for text in [
            "[core]\nfsmonitor = ./x",
            "[CORE]\r\n\tFsMonitor=./x\r\n",
            "\u{feff}[core] fsmonitor = \"./x\" ; comment",
            "[core]bare=false\nfsmonitor = .\\\n/x",
            "[core]\nbare\nfsmonitor = ./x # comment",
            "[user]\nname = \"a\\\"b\"\n[ core ]\nfsmonitor = ./x",
        ] {
            assert_eq!(found(text), ["core.fsmonitor=./x"], "{text:?}");
        }
        for (text, name) in [
            ("[filter \"a.b\"]\nclean = x", "filter.a.b.clean"),
            ("[filter.a]\nclean = x", "filter.a.clean"),
            ("[includeIf \"gitdir:/x/.clean\"]\npath = x", "includeif.gitdir:/x/.clean.path"),
            ("[alias]\nst = !x", "alias.st"),
            ("[alias]\nst = rebase -ix ./x HEAD~", "alias.st"),
            ("[alias]\nst = \"rebase --'ex'e=./x HEAD~\"", "alias.st"),
            ("[alias]\nst = --exec-path=x foo", "alias.st"),
            ("[alias]\nst = log --output=x", "alias.st"),
            ("[alias]\nst = config core.pager x", "alias.st"),
            ("[alias \"st\"]\ncommand = bisect run ./x", "alias.st.command"),
            ("[rebase]\ninstructionFormat = %s%nexec x", "rebase.instructionformat"),
            ("[submodule \"o\"]\nurl = ext::x", "submodule.o.url"),
            ("[tig \"bind\"]\nmain = x !y", "tig.bind.main"),
            ("[http \"https://x\"]\nsaveCookies", "http.https://x.savecookies"),
            ("[remote \"o\"]\nurl = ext::sh -c x", "remote.o.url"),
            ("[url \"ext::x\"]\ninsteadOf = https:", "url.ext::x.insteadof"),
            ("[pager]\nlog = x", "pager.log"),
            ("[lfs \"customtransfer.x\"]\npath = x", "lfs.customtransfer.x.path"),
        ] {
            assert!(found(text).iter().any(|one| one.starts_with(name)), "{text:?}: {:?}", found(text));
        }
    }

    #[test]
    fn values_are_what_git_reads() {
        // As `git config --list` of git 2.47 prints them.
        let text = "[a]\n b = \"  x \\n\"  \n b =   y  z  # c\n b = \"\" \n b = x \"  \" \n b = \" \"\n b = x \\\n   y\n b = a  ;\n \
                    b = \\t\n b = v\r\n b = w \r\t\n b = x  \\\n";
        let entries = ConfigParser::new(text.as_bytes()).entries();
        let values: Vec<_> = entries.iter().map(|entry| entry.value.as_str()).collect();
        assert_eq!(values, ["  x \n", "y  z", "", "x   ", " ", "x    y", "a", "\t", "v", "w", "x  "]);
        assert_eq!(found("[core]\nfsmonitor = \"true\\n\"\n"), ["core.fsmonitor=true\n"]);
    }

    #[test]
    fn what_runs_nothing_is_left_alone() {
        for text in [
            "[core]\nrepositoryformatversion = 0\nfilemode = true\nbare = false\nfsmonitor = true\nfsmonitor",
            "[user]\nname = core.fsmonitor\nemail = x",
            "[remote \"origin\"]\nurl = https://example.org/x\nfetch = +refs/heads/*:refs/remotes/origin/*",
            "[branch \"filter.x.clean\"]\nremote = origin\nmerge = refs/heads/x",
            "[submodule \"x\"]\nurl = ../x\nactive = true\nupdate = rebase",
            "# [core]\n# fsmonitor = x\n",
            "[alias]\nst = status\nlg = log --graph --oneline --format='%h %s' -n 5\npu = push -u origin HEAD",
            "[alias]\nci = commit -v\nunstage = reset HEAD --\nbr = branch -vv",
            "[http]\nsaveCookies = false",
            "[pager]\nlog = false",
            "[extensions]\nworktreeConfig = true",
        ] {
            assert_eq!(found(text), [""; 0], "{text:?}");
        }
    }
}
