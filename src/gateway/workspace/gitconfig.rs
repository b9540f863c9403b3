//! The grammar of git's configuration files, and which of their entries make git run code. Pure.
//!
//! Reads at least what git reads: what git would refuse whole may be read here in part, which finds too much and never
//! too little. Changes nothing, and follows no include.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

pub(crate) use super::config_rules::ConfigKind;
use super::config_rules::{self, ConfigRule};

/// The maximum number of dangerous entries of a file that are kept. What follows them counts as one more.
const MAX_DANGEROUS_ENTRIES: usize = 4_096;

/// One entry: its name in small letters but for the subsection, and its value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConfigEntry {
    section: String,
    subsection: Option<String>,
    variable: String,
    /// Without quotes and escapes, byte for byte: a path need not be text.
    pub value: Vec<u8>,
}

impl ConfigEntry {
    /// As people write it: `core.fsmonitor`.
    pub(crate) fn name(&self) -> String {
        let Self { section, subsection, variable, .. } = self;
        match subsection {
            Some(subsection) => format!("{section}.{subsection}.{variable}"),
            None => format!("{section}.{variable}"),
        }
    }

    /// Its section, in small letters.
    pub(crate) fn section(&self) -> &str {
        &self.section
    }

    /// Its subsection, as it is written.
    pub(crate) fn subsection(&self) -> Option<&str> {
        self.subsection.as_deref()
    }

    /// Its name in the section, in small letters.
    pub(crate) fn variable(&self) -> &str {
        &self.variable
    }

    /// As a person is shown it.
    pub(crate) fn shown(&self) -> String {
        format!("{} = {}", self.name(), lossy(&self.value))
    }

    /// Whether it takes in another configuration.
    pub(crate) fn is_include(&self) -> bool {
        self.section.starts_with("include")
    }

    /// Whether it names a directory of hooks.
    pub(crate) fn is_hooks_path(&self) -> bool {
        matches!(self.name().as_str(), "core.hookspath" | "gitflow.path.hooks")
    }

    /// Whether it names a directory from which new repositories are filled.
    pub(crate) fn is_template(&self) -> bool {
        self.variable == "templatedir"
    }

    /// Whether the value is a path, and no command.
    pub(crate) fn is_path(&self) -> bool {
        ["path", "templatedir", "attributesfile", "hooks", "prog"]
            .iter()
            .any(|end| self.variable.ends_with(end))
    }
}

/// The entries of a file that make git run code.
pub(crate) fn dangerous(text: &[u8], kind: ConfigKind) -> BTreeSet<ConfigEntry> {
    let mut parser = ConfigParser::new(text);
    let (mut found, mut count) = (BTreeSet::new(), 0);
    let mut rules = Vec::new();
    while let Some(item) = parser.read_next() {
        match item {
            ConfigItem::Header => {
                rules.clear();
                rules.extend(config_rules::rules_of(kind, parser.section(), parser.subsection()));
            }
            ConfigItem::Entry if parser.is_dangerous(&rules) => {
                found.insert(parser.entry());
                count += 1;
            }
            ConfigItem::Entry => {}
        }
        if count == MAX_DANGEROUS_ENTRIES {
            found.insert(parser.rest());
            break;
        }
    }
    found
}

/// The entries of a file in their order, but for those whose names git reads otherwise.
pub(crate) fn config_entries(text: &[u8]) -> Vec<ConfigEntry> {
    let mut parser = ConfigParser::new(text);
    let mut found = Vec::new();
    while let Some(item) = parser.read_next() {
        if item == ConfigItem::Entry && !parser.has_nul {
            found.push(parser.entry());
        }
    }
    found
}

/// Where a repository says that its files are.
pub(crate) fn worktrees(text: &[u8]) -> BTreeSet<String> {
    values(text, "core.worktree").iter().map(|value| lossy(value)).collect()
}

/// The same, byte for byte.
pub(crate) fn worktree_paths(text: &[u8]) -> Vec<Vec<u8>> {
    values(text, "core.worktree")
}

/// The last value of an entry with this name, in small letters.
pub(crate) fn last_value(text: &[u8], name: &str) -> Option<String> {
    values(text, name).pop().map(|value| lossy(&value))
}

/// The values of the entries with this name, as far as git reads them.
fn values(text: &[u8], name: &str) -> Vec<Vec<u8>> {
    let mut parser = ConfigParser::new(text);
    let mut found = Vec::new();
    while let Some(item) = parser.read_next() {
        if item == ConfigItem::Entry && parser.is_named(name) {
            found.push(until_nul(&parser.value).to_vec());
        }
    }
    found
}

/// What git reads of a text that it passes on as a string of C's.
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.get(..memchr::memchr(0, bytes).unwrap_or(bytes.len())).unwrap_or_default()
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a parser has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConfigItem {
    /// The head of a section.
    Header,
    /// An entry of the section.
    Entry,
}

/// Reads a file item by item. The buffers hold the last item, and are used again for the next one.
struct ConfigParser<'a> {
    text: &'a [u8],
    at: usize,
    /// The section with its subsection, with a dot between them. Empty before the first one.
    header: Vec<u8>,
    /// How much of it is the section.
    section_length: usize,
    /// A byte in it ends the name for git, which takes the entries for others.
    has_nul: bool,
    variable: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> ConfigParser<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self {
            text: text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text),
            at: 0,
            header: Vec::new(),
            section_length: 0,
            has_nul: false,
            variable: Vec::new(),
            value: Vec::new(),
        }
    }

    fn read_next(&mut self) -> Option<ConfigItem> {
        loop {
            match self.peek()? {
                b'#' | b';' => self.skip_line(),
                b'[' => {
                    self.read_header();
                    return Some(ConfigItem::Header);
                }
                byte if byte.is_ascii_alphanumeric() => {
                    self.read_assignment();
                    // Git refuses an entry without a section.
                    if !self.header.is_empty() {
                        return Some(ConfigItem::Entry);
                    }
                }
                _ => self.at += 1,
            }
        }
    }

    fn section(&self) -> &[u8] {
        self.header.get(..self.section_length).unwrap_or_default()
    }

    fn subsection(&self) -> Option<&[u8]> {
        self.header.get(self.section_length + 1..)
    }

    /// Whether the entry has this name.
    fn is_named(&self, name: &str) -> bool {
        let rest = name.as_bytes().strip_prefix(self.header.as_slice());
        rest.and_then(|rest| rest.strip_prefix(b".")) == Some(self.variable.as_slice())
    }

    /// Whether the entry makes git run code, by its whole value or by what git reads of it.
    fn is_dangerous(&self, rules: &[&ConfigRule]) -> bool {
        let is_dangerous = |rule: &&ConfigRule| {
            rule.is_about(&self.variable) && {
                let read_by_git = until_nul(&self.value);
                let is_cut = read_by_git.len() < self.value.len();
                rule.is_dangerous(&self.value) || (is_cut && rule.is_dangerous(read_by_git))
            }
        };
        self.has_nul || rules.iter().any(is_dangerous)
    }

    fn entry(&self) -> ConfigEntry {
        ConfigEntry {
            section: lossy(self.section()),
            subsection: self.subsection().map(lossy),
            variable: lossy(&self.variable),
            value: self.value.clone(),
        }
    }

    /// Stands for all that is not read yet.
    fn rest(&self) -> ConfigEntry {
        let digest = Sha256::digest(self.text.get(self.at..).unwrap_or_default());
        ConfigEntry {
            // After all names.
            section: "~".to_owned(),
            subsection: None,
            variable: "more".to_owned(),
            value: digest.to_vec(),
        }
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
    fn read_header(&mut self) {
        self.at += 1;
        self.header.clear();
        while let Some(byte) = self.next() {
            match byte {
                b']' | b'\n' => break,
                b'"' => self.read_quoted_subsection(),
                byte if byte.is_ascii_whitespace() => {}
                byte => self.header.push(byte.to_ascii_lowercase()),
            }
        }
        self.section_length = memchr::memchr(b'.', &self.header).unwrap_or(self.header.len());
        self.has_nul = self.header.contains(&0);
    }

    fn read_quoted_subsection(&mut self) {
        self.header.push(b'.');
        while let Some(byte) = self.next() {
            match byte {
                b'"' | b'\n' => break,
                b'\\' => {
                    let escaped = self.next();
                    self.header.extend(escaped);
                }
                byte => self.header.push(byte),
            }
        }
    }

    fn read_assignment(&mut self) {
        self.variable.clear();
        while let Some(byte) = self.peek().filter(|byte| byte.is_ascii_alphanumeric() || *byte == b'-') {
            self.variable.push(byte.to_ascii_lowercase());
            self.at += 1;
        }
        while self.peek().is_some_and(|byte| matches!(byte, b' ' | b'\t')) {
            self.at += 1;
        }
        if self.peek() == Some(b'=') {
            self.at += 1;
            self.read_value();
        } else {
            // No value stands for true; what follows is the next entry's.
            self.value.clear();
            self.value.extend_from_slice(b"true");
        }
    }

    /// Without the spaces around it, but for those that are quoted or escaped.
    fn read_value(&mut self) {
        let (mut is_quoted, mut is_comment) = (false, false);
        let mut bytes = std::mem::take(&mut self.value);
        bytes.clear();
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
        self.value = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let entries = dangerous(text.as_bytes(), ConfigKind::Repository);
        entries.iter().map(|entry| format!("{}={}", entry.name(), lossy(&entry.value))).collect()
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
            ("[alias \"a\"]\nb = !x", "alias.a.b"),
            ("[alias]\nst = rebase -s x/e", "alias.st"),
            ("[pull]\ntwohead = x/e", "pull.twohead"),
            ("[protocol]\nallow = user", "protocol.allow"),
            ("[protocol \"ext\"]\nallow = USER", "protocol.ext.allow"),
            ("[url \"e\"]\ninsteadOf = https://", "url.e.insteadof"),
            ("[url \"\"]\npushInsteadOf = https://x", "url..pushinsteadof"),
            ("[remote \"o\"]\nurl = ext://x", "remote.o.url"),
            ("[remote \"ext::x\"]\npromisor", "remote.ext::x.promisor"),
            ("[remotes]\ndefault = a ext::x", "remotes.default"),
            ("[extensions]\npartialClone = ext::x", "extensions.partialclone"),
            ("[diff]\ntool = ../x", "diff.tool"),
            ("[merge]\nguitool = ../x", "merge.guitool"),
            ("[mergetool \"vimdiff\"]\nlayout = `x`", "mergetool.vimdiff.layout"),
            ("[annex]\nfreezecontent-command = x", "annex.freezecontent-command"),
            ("[annex]\nx-store-hook = x", "annex.x-store-hook"),
            ("[remote \"o\"]\nannex-cost-command = x", "remote.o.annex-cost-command"),
            ("[stgit]\nPager = x", "stgit.pager"),
            ("[stgit \"alias\"]\nst = !x", "stgit.alias.st"),
            ("[gui]\nhistoryBrowser = x", "gui.historybrowser"),
        ] {
            assert!(found(text).iter().any(|one| one.starts_with(name)), "{text:?}: {:?}", found(text));
        }
    }

    #[test]
    fn values_are_what_git_reads() {
        // As `git config --list` of git 2.47 prints them.
        let text = "[a]\n b = \"  x \\n\"  \n b =   y  z  # c\n b = \"\" \n b = x \"  \" \n b = \" \"\n b = x \\\n   y\n b = a  ;\n \
                    b = \\t\n b = v\r\n b = w \r\t\n b = x  \\\n";
        assert_eq!(
            values(text.as_bytes(), "a.b").iter().map(|value| lossy(value)).collect::<Vec<_>>(),
            ["  x \n", "y  z", "", "x   ", " ", "x    y", "a", "\t", "v", "w", "x  "]
        );
        assert_eq!(found("[core]\nfsmonitor = \"true\\n\"\n"), ["core.fsmonitor=true\n"]);
    }

    #[test]
    fn a_byte_that_ends_a_name_or_a_value_for_git_hides_nothing() {
        for text in [
            "[core \"fsmonitor\0zz\"]\na = ./x",
            "[co\0re]\na = ./x",
            "[core]\nfsmonitor = ./x\0",
            "[core]\nfsmonitor = true\0",
            "[alias]\nst = !x\0",
            "[url \"e\0\"]\ninsteadOf = x",
        ] {
            assert_eq!(found(text).len(), 1, "{text:?}: {:?}", found(text));
        }
        assert_eq!(found("[user]\nname = a\0b"), [""; 0]);
        assert_eq!(worktrees(b"[core]\nworktree = /x\0y\n"), BTreeSet::from(["/x".to_owned()]));
    }

    #[test]
    fn a_section_counts_however_its_subsection_is_written() {
        assert_eq!(found("[filter.A \"b\"]\nclean = x"), ["filter.a.b.clean=x"]);
        assert_eq!(found("[filter \"a\\\"b\"]\nclean = x"), ["filter.a\"b.clean=x"]);
        assert_eq!(last_value(b"[a \"B.c\"]\nd = 1\n[a]\nd = 2\n", "a.B.c.d").as_deref(), Some("1"));
        assert_eq!(last_value(b"[a]\nd = 1\nD = 2\n", "a.d").as_deref(), Some("2"));
    }

    #[test]
    fn a_large_file_takes_little_time_and_what_follows_many_dangerous_entries_counts() {
        // In a build without optimizations. With them a file takes some ten milliseconds.
        const BOUND: std::time::Duration = std::time::Duration::from_secs(10);
        let started = std::time::Instant::now();
        for (section, line) in [
            ("", "a\n"),
            ("[b]\n", "a\n"),
            ("", "[a]\n"),
            ("[core]\n", "fsmonitor\n"),
            ("[sendemail]\n", "a = \"x\n"),
            ("[alias]\n", "a = log\n"),
        ] {
            let text = section.to_owned() + &line.repeat((1 << 20) / line.len());
            assert_eq!(found(&text), [""; 0], "{section:?} {line:?}");
        }
        assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
        let many = "[core]\n".to_owned() + &"editor = x\n".repeat(MAX_DANGEROUS_ENTRIES);
        let entries = |more: &str| dangerous((many.clone() + more).as_bytes(), ConfigKind::Repository);
        assert_eq!(entries("").len(), 2);
        assert_ne!(entries("pager = x"), entries("pager = y"));
        assert_eq!(entries("pager = x"), entries("pager = x"));
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
            "[pull]\ntwohead = ort\nrebase = true",
            "[protocol]\nversion = 2\nallow = never\n[protocol \"file\"]\nallow = always",
            "[url \"git@example.org:\"]\ninsteadOf = https://example.org/",
            "[url \"https://example.org/\"]\ninsteadOf = ex:",
            "[remote \"e\"]\nurl = https://ext.example.org/\npromisor = true",
            "[remotes]\nall = origin up",
            "[diff]\ntool = meld\nguitool = meld\n[merge]\ntool = vimdiff3",
            "[annex]\nuuid = x\nversion = 10\n[remote \"o\"]\nannex-uuid = x\n[stgit]\nautosign = a",
            "fsmonitor = x\n",
        ] {
            assert_eq!(found(text), [""; 0], "{text:?}");
        }
    }
}
