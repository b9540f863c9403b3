//! The shipped list of variables that no caller may pass: `policies/data/variables.toml`, compiled in.
//!
//! Finds the entries that match a name and, where it is known, a value. What a profile adds and drops is applied by
//! [`super::environment`].

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;

/// What a command line may do that sets the variable. A caller that passes it is refused in both cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnAssignment {
    /// The line is refused.
    Denied,
    /// Code is loaded into programs that are executed under their own names: the line is refused, unless any command is allowed. Then it
    /// is evaluated as if it could run any.
    Loads,
    /// The line is evaluated as if it could run any command.
    Guarded,
}

/// One entry of the list.
#[derive(Debug)]
pub struct ListedVariable {
    /// Names: `*` stands for any text.
    pub pattern: String,
    /// What such a variable does, beginning with the tool.
    pub reason: String,
    /// What a command line may do that sets it.
    pub on_assignment: OnAssignment,
    /// A value that consists of these words is harmless.
    except: Option<Vec<String>>,
    /// Whether it applies only to names that no other entry matches.
    is_general: bool,
}

/// The group of names that mean the same to most programs.
const GENERAL: &str = "any program";

impl ListedVariable {
    /// Whether the entry is about this variable: by its name, and by its value where that is known.
    fn applies_to(&self, name: &str, value: Option<&str>) -> bool {
        matches(&self.pattern, name) && !value.is_some_and(|value| self.is_harmless(value))
    }

    fn is_harmless(&self, value: &str) -> bool {
        let Some(except) = &self.except else { return false };
        let is_listed = |word: &str| except.iter().any(|known| word_matches(known, word));
        value.split([' ', '\t']).filter(|word| !word.is_empty()).all(is_listed)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VariableFile {
    denied: ToolTables,
    loaded: ToolTables,
    guarded: ToolTables,
}

type ToolTables = BTreeMap<String, BTreeMap<String, VariableEntry>>;

#[derive(Deserialize)]
#[serde(untagged)]
enum VariableEntry {
    Reason(String),
    Detailed(DetailedEntry),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DetailedEntry {
    why: String,
    except: Vec<String>,
}

/// The list, in the order of precedence: denied entries and those that load code, then guarded ones.
struct VariableList {
    variables: Vec<ListedVariable>,
    /// Indices of entries, by the first byte of the names that they match.
    by_first: Vec<Vec<usize>>,
}

static LIST: LazyLock<VariableList> = LazyLock::new(|| {
    let file: VariableFile = toml::from_str(include_str!("policies/data/variables.toml"))
        .expect("the list that is compiled in is valid: a unit test loads it");
    let of = |tools: ToolTables, in_lines: OnAssignment| {
        tools.into_iter().flat_map(move |(tool, entries)| {
            entries.into_iter().map(move |(pattern, entry)| {
                let (why, except) = match entry {
                    VariableEntry::Reason(why) => (why, None),
                    VariableEntry::Detailed(DetailedEntry { why, except }) => (why, Some(except)),
                };
                // Where a group is of several tools, each entry names its own.
                let reason = if why.contains(": ") { why } else { format!("{tool}: {why}") };
                ListedVariable {
                    pattern,
                    reason,
                    on_assignment: in_lines,
                    except,
                    is_general: tool == GENERAL,
                }
            })
        })
    };
    let mut variables: Vec<ListedVariable> = of(file.denied, OnAssignment::Denied)
        .chain(of(file.loaded, OnAssignment::Loads))
        .chain(of(file.guarded, OnAssignment::Guarded))
        .collect();
    // A refusal names the pattern that says most.
    variables.sort_by_key(|variable| {
        (variable.on_assignment == OnAssignment::Guarded, variable.pattern.contains('*'))
    });
    let mut by_first = vec![Vec::new(); 256];
    for (at, variable) in variables.iter().enumerate() {
        let begins = |first: u8| match variable.pattern.as_bytes()[0] {
            b'*' => true,
            own if is_any_case(&variable.pattern) => own.eq_ignore_ascii_case(&first),
            own => own == first,
        };
        (0..=u8::MAX).filter(|first| begins(*first)).for_each(|first| by_first[usize::from(first)].push(at));
    }
    VariableList { variables, by_first }
});

/// All entries.
pub fn all() -> &'static [ListedVariable] {
    &LIST.variables
}

/// The entries that match a variable, denied ones first.
pub fn matching<'a>(
    name: &'a str,
    value: Option<&'a str>,
) -> impl Iterator<Item = &'static ListedVariable> + 'a {
    let first = name.bytes().next().unwrap_or_default();
    let possible = LIST.by_first[usize::from(first)].iter().map(|at| &LIST.variables[*at]);
    // A specific entry overrides the general ones; otherwise its harmless values would be refused by them.
    let is_known = possible.clone().any(|variable| !variable.is_general && matches(&variable.pattern, name));
    // One that loads code is listed by its name where a pattern denies others of its kind (`LD_*`).
    let loads = move |variable: &ListedVariable| {
        variable.on_assignment == OnAssignment::Loads && variable.pattern == name
    };
    let is_loading = possible.clone().any(loads);
    possible.filter(move |variable| {
        !(variable.is_general && is_known)
            && (!is_loading || loads(variable))
            && variable.applies_to(name, value)
    })
}

/// Whether a pattern matches a name. `*` stands for any text. A pattern without capital letters matches names in any case.
pub fn matches(pattern: &str, name: &str) -> bool {
    let same = |a: u8, b: u8| a == b || (is_any_case(pattern) && a.eq_ignore_ascii_case(&b));
    glob(pattern.as_bytes(), name.as_bytes(), &same, &|_| true)
}

fn is_any_case(pattern: &str) -> bool {
    !pattern.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// Whether a word of a value is as a listed one, in which `*` stands for what cannot mean anything else to a shell. `#` is a
/// number: older versions of ksh take any other text for an expression.
fn word_matches(known: &str, word: &str) -> bool {
    if known == "#" {
        return !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+=-".contains(&byte);
    glob(known.as_bytes(), word.as_bytes(), &|a, b| a == b, &is_plain)
}

fn glob(pattern: &[u8], text: &[u8], same: &dyn Fn(u8, u8) -> bool, in_star: &dyn Fn(u8) -> bool) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(byte) if same(*byte, text[read]) => {
                at += 1;
                read += 1;
            }
            Some(_) | None => match star {
                // The last star takes one more.
                Some((star_at, taken)) if in_star(text[taken]) => {
                    star = Some((star_at, taken + 1));
                    at = star_at + 1;
                    read = taken + 1;
                }
                Some(_) | None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn first_match(name: &str, value: &str) -> Option<(&'static str, OnAssignment)> {
        matching(name, Some(value)).next().map(|variable| (variable.pattern.as_str(), variable.on_assignment))
    }

    #[test]
    fn the_list_is_plain_and_has_a_reason_for_each_pattern() {
        let patterns: BTreeSet<&str> = all().iter().map(|variable| variable.pattern.as_str()).collect();
        assert_eq!(patterns.len(), all().len(), "a pattern stands there twice");
        assert!(patterns.len() > 500, "{}", patterns.len());
        for ListedVariable { pattern, reason, except, .. } in all() {
            let plain = |c: char| c.is_ascii_alphanumeric() || "_*.,".contains(c);
            assert!(!pattern.is_empty() && pattern.chars().all(plain), "{pattern:?}");
            assert!(!pattern.contains("**") && pattern != "*", "{pattern:?}");
            assert!(reason.split(": ").last().is_some_and(|why| why.len() >= 4), "{pattern:?}: {reason:?}");
            assert!(
                except.iter().flatten().all(|word| !word.contains([' ', '/', '$']) || word.starts_with('/'))
            );
        }
    }

    #[test]
    fn what_changes_names_or_runs_code_is_covered() {
        for name in [
            "PATH",
            "HOME",
            "CDPATH",
            "XDG_CONFIG_HOME",
            "LD_PRELOAD",
            "PYTHONPATH",
            "NODE_PATH",
            "MAKEFLAGS",
            "MAKEFILES",
            "npm_config_script_shell",
            "NPM_CONFIG_SHELL",
            "Npm_Config_prefix",
            "LUA_INIT",
            "LUA_INIT_5_4",
            "AWKPATH",
            "GOFLAGS",
            "CARGO_BUILD_RUSTC_WRAPPER",
            "RUSTC_WRAPPER",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER",
            "CARGO_HOME",
            "JAVA_TOOL_OPTIONS",
            "MAVEN_OPTS",
            "DOTNET_STARTUP_HOOKS",
            "PERL5OPT",
            "R_PROFILE_USER",
            "R_LIBS",
            "GEM_HOME",
            "BUNDLE_GEMFILE",
            "GIT_DIR",
            "GIT_CONFIG_COUNT",
            "GIT_SSH_COMMAND",
            "PHPRC",
            "JULIA_LOAD_PATH",
            "OCAMLPATH",
            "DOCKER_HOST",
            "KUBECONFIG",
            "AWS_CONFIG_FILE",
            "https_proxy",
            "HTTPS_PROXY",
            "SYSTEMD_PAGER",
            "RM",
            ".SHELLFLAGS",
            "COMPILE.c",
            "CHECKOUT,v",
            "TARGET_ARCH",
            "GIT_TEST_MAINT_SCHEDULER",
            "GITPERLLIB",
            "_PYTHON_SYSCONFIGDATA_NAME",
            "SECONDS",
            "OLDPWD",
            "OMP_TOOL_LIBRARIES",
            "SOME_TOOL_BINARY",
            "SOME_TOOL_EDITOR",
            "SOME_TOOL_PLUGIN_PATH",
        ] {
            assert!(first_match(name, "/tmp/x").is_some(), "{name} passes");
        }
    }

    #[test]
    fn what_agents_pass_every_day_is_not() {
        for (name, value) in [
            ("LANG", "C.UTF-8"),
            ("LC_ALL", "C"),
            ("LC_CTYPE", "C.UTF-8"),
            ("TZ", "UTC"),
            ("TERM", "dumb"),
            ("COLORTERM", ""),
            ("CI", "true"),
            ("NO_COLOR", "1"),
            ("FORCE_COLOR", "0"),
            ("COLUMNS", "80"),
            ("LINES", "24"),
            ("RUST_BACKTRACE", "1"),
            ("RUST_LOG", "debug"),
            ("CARGO_TERM_COLOR", "never"),
            ("CARGO_BUILD_JOBS", "2"),
            ("CARGO_INCREMENTAL", "0"),
            ("CARGO_NET_OFFLINE", "true"),
            ("PYTHONUNBUFFERED", "1"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
            ("PYTHONHASHSEED", "0"),
            ("PYTHONIOENCODING", "utf-8"),
            ("PYTHONUTF8", "1"),
            ("NODE_ENV", "test"),
            ("DEBUG", "*"),
            ("PAGER", "cat"),
            ("PAGER", ""),
            ("GIT_PAGER", "cat"),
            ("GH_PAGER", "cat"),
            ("GIT_EDITOR", "true"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_AUTHOR_NAME", "A"),
            ("GIT_AUTHOR_DATE", "1"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_TRACE", "1"),
            ("GOOS", "linux"),
            ("GOARCH", "arm64"),
            ("CGO_ENABLED", "0"),
            ("GOMAXPROCS", "2"),
            ("DEBIAN_FRONTEND", "noninteractive"),
            ("USER", "a"),
            ("TMPDIR", "/tmp"),
            ("PORT", "8080"),
            ("DATABASE_URL", "x"),
            ("NODE_OPTIONS", "--max-old-space-size=4096"),
            ("RUSTFLAGS", "-D warnings"),
            ("CFLAGS", "-O2 -g"),
            ("SHELL", "/bin/bash"),
            ("ACP_AGENT", "x"),
            ("npm_config_yes", "true"),
            ("PIP_NO_INPUT", "1"),
            ("SOURCE_DATE_EPOCH", "0"),
            ("CLAUDECODE", "1"),
            ("SHLVL", "1"),
            ("PUPPETEER_SKIP_CHROMIUM_DOWNLOAD", "true"),
            ("IN_NIX_SHELL", "pure"),
        ] {
            assert_eq!(first_match(name, value), None, "{name}={value}");
        }
    }

    #[test]
    fn a_value_is_harmless_only_when_each_of_its_words_is() {
        let refuses = |name: &str, value: &str| first_match(name, value).is_some();
        for value in ["cat /etc/passwd", "./cat", "sh -c x", "cat;x", "less"] {
            assert!(refuses("PAGER", value), "{value}");
        }
        assert!(refuses("NODE_OPTIONS", "--max-old-space-size=1 --require=./x"));
        assert!(refuses("CFLAGS", "-O$(x)"));
        assert!(refuses("CFLAGS", "-Wl,-plugin"));
        assert!(refuses("CFLAGS", "-O2 -B."));
        assert!(refuses("GIT_TRACE", "/tmp/x"));
        assert!(refuses("RUSTFLAGS", "-C linker=./x"));
        assert!(refuses("LD_PRELOAD", ""));
        for name in ["RUSTC_WRAPPER", "PROMPT_COMMAND", "LESSOPEN", "MY_COMMAND", "MY_BINARY"] {
            assert!(!refuses(name, "") && refuses(name, "x"), "{name}: nothing names no program");
        }
        assert!(refuses("PS4", "$(x)") && refuses("PS4", "`x`") && !refuses("PS4", "+ "));
        assert!(refuses("GIT_CONFIG_GLOBAL", "/work/x") && !refuses("GIT_CONFIG_GLOBAL", "/dev/null"));
        for value in ["a[$(id)]", "x", "8 0+x", "1.5", "0x10"] {
            assert!(refuses("COLUMNS", value), "{value}");
        }
    }

    #[test]
    fn what_loads_code_is_listed_by_itself_where_a_pattern_denies_its_kind() {
        let of = |name: &str, value: &str| first_match(name, value).map(|(_, on_assignment)| on_assignment);
        for name in
            ["LD_LIBRARY_PATH", "NODE_OPTIONS", "PERL5LIB", "RUBYOPT", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"]
        {
            assert_eq!(of(name, "x"), Some(OnAssignment::Loads), "{name}");
        }
        assert_eq!(of("_JAVA_OPTIONS", "-Xmx1g"), None);
        for name in
            ["LD_PRELOAD", "LD_AUDIT", "BASH_ENV", "GIT_CONFIG_COUNT", "CARGO_ALIAS_X", "PERL5DB", "_JAVA_X"]
        {
            assert_eq!(of(name, "x"), Some(OnAssignment::Denied), "{name}");
        }
        for name in ["IFS", "ENV", "RUSTC_WRAPPER", "GIT_SSH_COMMAND", "GIT_SEQUENCE_EDITOR"] {
            assert_eq!(of(name, "x"), Some(OnAssignment::Guarded), "{name}");
        }
    }

    #[test]
    fn a_star_stands_for_any_text_and_small_letters_for_any_case() {
        assert!(matches("LD_*", "LD_PRELOAD") && matches("*", "ANYTHING") && matches("ENV", "ENV"));
        assert!(!matches("ENV", "ENVIRONMENT") && !matches("LD_*", "OLD_PRELOAD") && !matches("ENV", "env"));
        assert!(matches("A_*_B", "A_x_B") && matches("A_*_B", "A__B") && !matches("A_*_B", "A_B"));
        assert!(matches("A_*_B", "A_x_B_y_B") && !matches("A_*_B", "A_x_BC"));
        assert!(matches("npm_*", "NPM_x") && matches("*_proxy", "Http_Proxy") && !matches("NPM_*", "npm_x"));
    }
}
