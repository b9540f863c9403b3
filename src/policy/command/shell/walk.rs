//! One walk over the syntax tree of a line, collecting its simple commands.
//!
//! Every command is collected wherever it stands: in substitutions, conditions, function bodies, here-documents.
//! Text that is only data (a quoted here-document, an argument) is not taken for a command. The grammar is not
//! trusted to have seen everything: text that no node of the tree accounts for, or a plain word that a shell
//! would find a substitution in, makes the line opaque.

use tree_sitter::{Node, Tree};

use super::{Dialect, Line, MOST_COMMANDS, Named, Opaque, OpaqueReason, Place, SimpleCommand, Word, word};

/// Constructs within constructs that are followed; deeper ones make the line opaque.
const DEEPEST: usize = 200;

pub(super) fn walk(source: &str, tree: &Tree, dialect: Dialect) -> Line {
    let mut walker =
        Walker { source, dialect, line: Line::default(), place: Place::Start, functions: Vec::new() };
    walker.visit(tree.root_node(), 0);
    let root = tree.root_node();
    let outside = [source.get(..root.start_byte()), source.get(root.end_byte()..)];
    if outside.iter().any(|text| text.is_none_or(|text| !is_blank(text))) {
        walker.hide(root, OpaqueReason::Syntax);
    }
    if walker.line.commands.len() > MOST_COMMANDS {
        walker.line.commands.truncate(MOST_COMMANDS);
        walker.hide(tree.root_node(), OpaqueReason::TooMany);
    }
    walker.line
}

struct Walker<'a> {
    source: &'a str,
    dialect: Dialect,
    line: Line,
    place: Place,
    functions: Vec<String>,
}

impl Walker<'_> {
    fn visit(&mut self, node: Node<'_>, depth: usize) {
        if depth > DEEPEST {
            return self.hide(node, OpaqueReason::TooMany);
        }
        let is_cut = self.source.get(node.byte_range()).is_none();
        if node.is_error() || node.is_missing() || is_cut {
            return self.hide(node, OpaqueReason::Syntax);
        }
        self.check_plain(node);
        match node.kind() {
            "redirected_statement" => self.redirected(node, depth),
            "command" => self.command(node, &[], depth),
            "declaration_command" | "unset_command" => self.declaration(node, depth),
            "variable_assignment" => self.assignment(node, depth),
            "function_definition" => self.function(node, depth),
            // `[ab]c` is a pattern in the place of a command word; the grammar sees a test and a command.
            "test_command" if !self.is_test(node) => self.hide(node, OpaqueReason::Pattern),
            // dash knows neither `[[` nor `((`: one is a program to it, the other a subshell.
            "test_command" if self.dialect == Dialect::Posix && !self.text(node).starts_with("[ ") => {
                self.hide(node, OpaqueReason::Dialect);
            }
            "compound_statement" if self.dialect == Dialect::Posix && self.text(node).starts_with("((") => {
                self.hide(node, OpaqueReason::Dialect);
            }
            // bash and dash do not agree on what this string is, nor even where it ends.
            "ansi_c_string" if self.dialect == Dialect::Posix && self.text(node).contains('\\') => {
                self.hide(node, OpaqueReason::Dialect);
            }
            // Inside of backquotes a backslash and a double quote mean other things than outside, by where they are.
            "command_substitution"
                if self.text(node).starts_with('`') && self.text(node).contains(['\\', '"']) =>
            {
                self.hide(node, OpaqueReason::Substitution);
            }
            // A child process of the shell: what it does to the working folder ends with it.
            "subshell" | "command_substitution" | "process_substitution" | "pipeline" => {
                let before = self.place.clone();
                self.children(node, depth);
                self.place = before;
            }
            "for_statement" => {
                self.loop_variable(node);
                self.perhaps(node, depth);
            }
            // What may or may not run.
            "if_statement" | "while_statement" | "c_style_for_statement" | "case_statement" => {
                self.perhaps(node, depth);
            }
            "list" if self.has_or(node) => self.perhaps(node, depth),
            "heredoc_redirect" => self.heredoc(node, depth),
            _ => self.children(node, depth),
        }
    }

    fn children(&mut self, node: Node<'_>, depth: usize) {
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            self.visit(child, depth + 1);
        }
    }

    /// What lies between the parts of a construct must be blank, and what is a plain word must be plain.
    fn check_plain(&mut self, node: Node<'_>) {
        let kind = node.kind();
        if node.child_count() == 0 {
            let is_data =
                matches!(kind, "raw_string" | "ansi_c_string" | "comment" | "heredoc_start" | "heredoc_end");
            let seen_through = match kind {
                "string_content" | "heredoc_content" | "heredoc_body" => word::holds_quoted_substitution,
                _ => word::holds_substitution,
            };
            if node.is_named() && !is_data && seen_through(self.text(node)) {
                self.hide(node, OpaqueReason::Substitution);
            }
            return;
        }
        let is_text = matches!(kind, "string" | "translated_string" | "heredoc_body" | "heredoc_redirect");
        let is_plain =
            |gap: &str| if is_text { !word::holds_quoted_substitution(gap) } else { is_blank(gap) };
        let mut cursor = node.walk();
        let mut end = node.start_byte();
        for child in node.children(&mut cursor) {
            if !is_plain(self.source.get(end..child.start_byte()).unwrap_or("`")) {
                return self.hide(node, OpaqueReason::Syntax);
            }
            end = end.max(child.end_byte());
        }
        if !is_plain(self.source.get(end..node.end_byte()).unwrap_or("`")) {
            self.hide(node, OpaqueReason::Syntax);
        }
    }

    fn perhaps(&mut self, node: Node<'_>, depth: usize) {
        let before = self.place.clone();
        self.children(node, depth);
        if self.place != before {
            self.place = Place::Unknown;
        }
    }

    fn is_test(&self, node: Node<'_>) -> bool {
        let text = self.text(node);
        let inner = text.trim_start_matches('[').trim_end_matches(']');
        text.starts_with("((")
            || (inner.starts_with(|c: char| c.is_whitespace())
                && inner.ends_with(|c: char| c.is_whitespace()))
    }

    fn has_or(&self, node: Node<'_>) -> bool {
        let mut cursor = node.walk();
        node.children(&mut cursor).any(|child| child.kind() == "||")
    }

    /// A command with redirections behind it. The grammar takes the words behind `> FILE` for more files.
    fn redirected(&mut self, node: Node<'_>, depth: usize) {
        let mut more = Vec::new();
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            self.words_of_redirect(child, &mut more);
        }
        // dash reads `a &> f b` as two commands.
        if self.dialect == Dialect::Posix && !more.is_empty() && self.text(node).contains("&>") {
            self.hide(node, OpaqueReason::Dialect);
        }
        let body = node.child_by_field_name("body");
        if body.is_none_or(|body| body.kind() != "command") && !more.is_empty() {
            self.hide(node, OpaqueReason::Syntax);
        }
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            if body == Some(child) && child.kind() == "command" {
                self.check_plain(child);
                self.command(child, &more, depth + 1);
            } else {
                self.visit(child, depth + 1);
            }
        }
    }

    /// Arguments that stand behind a redirection and belong to its command.
    fn words_of_redirect(&mut self, node: Node<'_>, words: &mut Vec<Word>) {
        let mut cursor = node.walk();
        match node.kind() {
            "file_redirect" => {
                let closes = self.text(node).contains("&-");
                let targets: Vec<_> = node.children_by_field_name("destination", &mut cursor).collect();
                let own = usize::from(!closes);
                words.extend(targets.iter().skip(own).map(|target| word::read(self.source, *target)));
            }
            "heredoc_redirect" => {
                let arguments: Vec<_> = node.children_by_field_name("argument", &mut cursor).collect();
                words.extend(arguments.iter().map(|argument| word::read(self.source, *argument)));
                let redirects: Vec<_> = node.children_by_field_name("redirect", &mut cursor).collect();
                for redirect in redirects {
                    self.words_of_redirect(redirect, words);
                }
            }
            _ => {}
        }
    }

    /// The body of a here-document is data, but for what an unquoted one substitutes.
    fn heredoc(&mut self, node: Node<'_>, depth: usize) {
        let mut cursor = node.walk();
        let children: Vec<_> = node.children(&mut cursor).collect();
        let is_quoted = children
            .iter()
            .any(|child| child.kind() == "heredoc_start" && self.text(*child).contains(['\'', '"', '\\']));
        for child in children {
            if !(is_quoted && child.kind() == "heredoc_body") {
                self.visit(child, depth + 1);
            }
        }
    }

    fn command(&mut self, node: Node<'_>, more: &[Word], depth: usize) {
        let mut assignments = Vec::new();
        let mut words = Vec::new();
        let mut end = 0;
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            match child.kind() {
                "variable_assignment" => assignments.extend(self.read_assignment(child)),
                "file_redirect" | "heredoc_redirect" => self.words_of_redirect(child, &mut words),
                "herestring_redirect" => {}
                _ if child.is_error() => {}
                // `a<(b)` is one word to a shell, two to the grammar.
                "process_substitution" if end == child.start_byte() && !words.is_empty() => {
                    words.pop();
                    words.push(Word::Opaque {
                        text: self.text(child).to_owned(),
                        reason: OpaqueReason::Substitution,
                    });
                }
                _ => words.push(word::read(self.source, child)),
            }
            end = child.end_byte();
        }
        words.extend_from_slice(more);
        // Substitutions run before the command does.
        self.children(node, depth);
        let of_function = match words.first().and_then(Word::literal) {
            Some(name) if self.functions.iter().any(|f| f == name) => Named::Function,
            _ => Named::Program,
        };
        let place = self.place.clone();
        if words.first().and_then(Word::literal).is_some_and(|w| matches!(w, "cd" | "pushd" | "popd")) {
            self.change_place(&words);
        }
        self.line.commands.push(SimpleCommand { assignments, words, place, of_function });
    }

    fn declaration(&mut self, node: Node<'_>, depth: usize) {
        if node.kind() == "unset_command" {
            // `unset -f`: what was a function may be a program again.
            self.functions.clear();
        }
        let mut assignments = Vec::new();
        let mut words = Vec::new();
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            match child.kind() {
                "variable_assignment" => assignments.extend(self.read_assignment(child)),
                _ => words.push(word::read(self.source, child)),
            }
        }
        self.substitutions(node, depth);
        let place = self.place.clone();
        self.line.commands.push(SimpleCommand { assignments, words, place, of_function: Named::Program });
    }

    /// An assignment that is a command of its own: it holds for the rest of the line.
    fn assignment(&mut self, node: Node<'_>, depth: usize) {
        let parent_takes_it = node
            .parent()
            .is_some_and(|p| matches!(p.kind(), "command" | "declaration_command" | "unset_command"));
        if !parent_takes_it {
            let assignments: Vec<_> = self.read_assignment(node).into_iter().collect();
            self.assign(assignments);
        }
        self.children(node, depth);
    }

    fn loop_variable(&mut self, node: Node<'_>) {
        if let Some(name) = node.child_by_field_name("variable") {
            let value = Word::Opaque { text: "...".into(), reason: OpaqueReason::Expansion };
            self.assign(vec![(self.text(name).to_owned(), value)]);
        }
    }

    fn assign(&mut self, assignments: Vec<(String, Word)>) {
        let place = self.place.clone();
        self.line.commands.push(SimpleCommand {
            assignments,
            words: Vec::new(),
            place,
            of_function: Named::Program,
        });
    }

    /// The substitutions in a declaration, without taking its assignments twice.
    fn substitutions(&mut self, node: Node<'_>, depth: usize) {
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            if child.kind() == "variable_assignment" {
                self.check_plain(child);
                self.children(child, depth + 1);
            } else {
                self.visit(child, depth + 1);
            }
        }
    }

    fn read_assignment(&self, node: Node<'_>) -> Option<(String, Word)> {
        let name = node.child_by_field_name("name")?;
        let name_text = match name.kind() {
            "subscript" => name.child_by_field_name("name").map(|n| self.text(n))?,
            _ => self.text(name),
        };
        let value = match node.child_by_field_name("value") {
            Some(value) => word::read(self.source, value),
            None => Word::Literal(String::new()),
        };
        Some((name_text.to_owned(), value))
    }

    fn function(&mut self, node: Node<'_>, depth: usize) {
        let before = self.place.clone();
        self.children(node, depth);
        if self.place != before {
            self.place = Place::Unknown;
        }
        // Only a definition that surely happens, and in this shell, makes later uses of its name a call of it.
        let surely = node.parent().is_some_and(|p| p.kind() == "program")
            && node.next_sibling().is_none_or(|next| matches!(next.kind(), ";" | "\n"));
        if let (true, Some(name)) = (surely, node.child_by_field_name("name")) {
            self.functions.push(self.text(name).to_owned());
        }
    }

    fn change_place(&mut self, words: &[Word]) {
        let mut target = None;
        for word in &words[1..] {
            match word.literal() {
                Some("-P" | "-L" | "-e" | "-@" | "--") => {}
                Some(text) if target.is_none() && !text.starts_with('-') => target = Some(text),
                _ => return self.place = Place::Unknown,
            }
        }
        let Some(target) = target.filter(|_| words[0].literal() == Some("cd")) else {
            return self.place = Place::Unknown;
        };
        self.place = match &self.place {
            _ if target.starts_with('/') => Place::After(target.to_owned()),
            Place::Start => Place::After(target.to_owned()),
            Place::After(base) => Place::After(format!("{base}/{target}")),
            Place::Unknown => Place::Unknown,
        };
    }

    fn text(&self, node: Node<'_>) -> &str {
        word::text_of(self.source, node)
    }

    fn hide(&mut self, node: Node<'_>, reason: OpaqueReason) {
        let text = self.text(node).chars().take(120).collect();
        self.line.opaque.push(Opaque { text, reason });
    }
}

/// Blanks, and newlines that are escaped.
fn is_blank(text: &str) -> bool {
    text.replace("\\\n", "").bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'\n'))
}
