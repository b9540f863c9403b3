//! One walk over the syntax tree of a line, collecting its simple commands.
//!
//! Every command is collected wherever it stands: in substitutions, conditions, function bodies, here-documents.
//! Text that is only data (a quoted here-document, an argument) is not taken for a command.

use tree_sitter::{Node, Tree};

use super::{Line, MOST_COMMANDS, Named, Opaque, OpaqueReason, Place, SimpleCommand, Word, word};

/// Constructs within constructs that are followed; deeper ones make the line opaque.
const DEEPEST: usize = 200;

pub(super) fn walk(source: &str, tree: &Tree) -> Line {
    let mut walker = Walker { source, line: Line::default(), place: Place::Start, functions: Vec::new() };
    walker.visit(tree.root_node(), 0);
    if walker.line.commands.len() > MOST_COMMANDS {
        walker.line.commands.truncate(MOST_COMMANDS);
        walker.hide(tree.root_node(), OpaqueReason::TooMany);
    }
    walker.line
}

struct Walker<'a> {
    source: &'a str,
    line: Line,
    place: Place,
    functions: Vec<String>,
}

impl Walker<'_> {
    fn visit(&mut self, node: Node<'_>, depth: usize) {
        if depth > DEEPEST {
            return self.hide(node, OpaqueReason::TooMany);
        }
        if node.is_error() || node.is_missing() {
            return self.hide(node, OpaqueReason::Syntax);
        }
        match node.kind() {
            "command" => self.command(node, depth),
            "declaration_command" => self.declaration(node, depth),
            "variable_assignment" => self.assignment(node, depth),
            "function_definition" => self.function(node, depth),
            // `[ab]c` is a pattern in the place of a command word; the grammar sees a test and a command.
            "test_command" if !self.is_test(node) => self.hide(node, OpaqueReason::Pattern),
            // A child process of the shell: what it does to the working folder ends with it.
            "subshell" | "command_substitution" | "process_substitution" | "pipeline" => {
                let before = self.place.clone();
                self.children(node, depth);
                self.place = before;
            }
            // What may or may not run.
            "if_statement"
            | "while_statement"
            | "for_statement"
            | "c_style_for_statement"
            | "case_statement" => {
                self.perhaps(node, depth);
            }
            "list" if self.has_or(node) => self.perhaps(node, depth),
            _ => self.children(node, depth),
        }
    }

    fn children(&mut self, node: Node<'_>, depth: usize) {
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            self.visit(child, depth + 1);
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
        let text = &self.source[node.byte_range()];
        let inner = text.trim_start_matches('[').trim_end_matches(']');
        text.starts_with("((")
            || (inner.starts_with(|c: char| c.is_whitespace())
                && inner.ends_with(|c: char| c.is_whitespace()))
    }

    fn has_or(&self, node: Node<'_>) -> bool {
        let mut cursor = node.walk();
        node.children(&mut cursor).any(|child| child.kind() == "||")
    }

    fn command(&mut self, node: Node<'_>, depth: usize) {
        let mut assignments = Vec::new();
        let mut words = Vec::new();
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            match child.kind() {
                "variable_assignment" => assignments.extend(self.read_assignment(child)),
                "file_redirect" | "herestring_redirect" | "heredoc_redirect" => {}
                _ if child.is_error() => {}
                _ => words.push(word::read(self.source, child)),
            }
        }
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
        let parent_takes_it =
            node.parent().is_some_and(|p| matches!(p.kind(), "command" | "declaration_command"));
        if !parent_takes_it {
            let assignments: Vec<_> = self.read_assignment(node).into_iter().collect();
            let place = self.place.clone();
            self.line.commands.push(SimpleCommand {
                assignments,
                words: Vec::new(),
                place,
                of_function: Named::Program,
            });
        }
        self.children(node, depth);
    }

    /// The substitutions in a declaration, without taking its assignments twice.
    fn substitutions(&mut self, node: Node<'_>, depth: usize) {
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            if child.kind() == "variable_assignment" {
                self.children(child, depth + 1);
            } else {
                self.visit(child, depth + 1);
            }
        }
    }

    fn read_assignment(&self, node: Node<'_>) -> Option<(String, Word)> {
        let name = node.child_by_field_name("name")?;
        let name_text = match name.kind() {
            "subscript" => name.child_by_field_name("name").map(|n| &self.source[n.byte_range()])?,
            _ => &self.source[name.byte_range()],
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
        // Only a definition that surely happens makes later uses of its name a call of it.
        let surely = node.parent().is_some_and(|p| p.kind() == "program");
        if let (true, Some(name)) = (surely, node.child_by_field_name("name")) {
            self.functions.push(self.source[name.byte_range()].to_owned());
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

    fn hide(&mut self, node: Node<'_>, reason: OpaqueReason) {
        let text = self.source[node.byte_range()].chars().take(120).collect();
        self.line.opaque.push(Opaque { text, reason });
    }
}
