//! Finds where in a file the mutants of a list are, as the parser sees it. A mutant whose place is not found, or that cannot be
//! switched at run time, is said with the reason; none is left out in silence.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use syn::{
    Arm, Block, Expr, ExprBinary, ExprStruct, ExprUnary, ImplItemConst, ImplItemFn, ItemConst, ItemFn, ItemStatic, Signature,
    TraitItemFn,
    spanned::Spanned,
    visit::{self, Visit},
};

use crate::Mutant;

/// A place that is rewritten, with the numbers of its mutants.
#[derive(Debug)]
pub struct Site {
    /// The bytes that are replaced.
    pub range: Range<usize>,
    pub kind: Kind,
}

#[derive(Debug)]
pub enum Kind {
    /// At the beginning of a function: it returns at once with a value.
    Returns(Vec<(usize, String)>),
    /// An operator between two operands.
    Binary { left: Range<usize>, operator: Range<usize>, right: Range<usize>, others: Vec<(usize, String)> },
    /// An operator before an operand.
    Unary { operand: Range<usize>, number: usize },
    /// The condition of an arm, replaced by a constant.
    Guard(Vec<(usize, String)>),
    /// After the pattern of an arm: the arm is not taken.
    ArmEnd { number: usize, has_guard: bool },
    /// A field left out of a struct expression that has a base.
    Fields(Vec<(usize, Range<usize>)>),
}

const NOT_FOUND: &str = "the parser has nothing at this place";
const IN_CHAIN: &str = "part of a condition with `let`";
const CONSTANT: &str = "computed by the compiler";
const OPAQUE: &str = "returns a type without a name, of which a function can have only one";
const DOES_NOT_COMPILE: &str = "does not compile behind a guard";

pub fn find(
    text: &str,
    mutants: &[&Mutant],
    excluded: &BTreeSet<&str>,
) -> Result<(Vec<Site>, BTreeMap<usize, &'static str>), syn::Error> {
    let file = syn::parse_file(text)?;
    let mut unguarded = BTreeMap::new();
    let mut wanted = BTreeMap::new();
    let lines: Vec<usize> = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    for &mutant in mutants {
        let is_opaque = |function: &crate::Function| function.return_type.contains("impl ");
        if excluded.contains(mutant.name.as_str()) {
            unguarded.insert(mutant.number, DOES_NOT_COMPILE);
        } else if mutant.genre == "FnValue" && mutant.function.as_ref().is_some_and(is_opaque) {
            unguarded.insert(mutant.number, OPAQUE);
        } else {
            let at = |place: &crate::Place| {
                let line = &text[lines[place.line - 1]..];
                let offset = line.char_indices().nth(place.column - 1).map_or(line.len(), |(at, _)| at);
                lines[place.line - 1] + offset
            };
            wanted.insert(mutant.number, (mutant, at(&mutant.span.start)..at(&mutant.span.end)));
        }
    }
    let mut finder = Finder { wanted, sites: Vec::new(), unguarded, functions: Vec::new() };
    finder.visit_file(&file);
    finder.place_returns();
    let Finder { wanted, mut sites, mut unguarded, .. } = finder;
    unguarded.extend(wanted.keys().map(|&number| (number, NOT_FOUND)));
    sites.sort_by_key(|site| (site.range.start, std::cmp::Reverse(site.range.end)));
    Ok((sites, unguarded))
}

struct Finder<'a> {
    /// What has not been found yet.
    wanted: BTreeMap<usize, (&'a Mutant, Range<usize>)>,
    sites: Vec<Site>,
    unguarded: BTreeMap<usize, &'static str>,
    /// The bodies of functions, with their braces.
    functions: Vec<Range<usize>>,
}

impl<'a> Finder<'a> {
    fn take(&mut self, genre: &str, is_here: impl Fn(&Range<usize>) -> bool) -> Vec<(usize, &'a Mutant, Range<usize>)> {
        let found: Vec<usize> = self
            .wanted
            .iter()
            .filter(|(_, (mutant, range))| mutant.genre == genre && is_here(range))
            .map(|(&number, _)| number)
            .collect();
        found
            .into_iter()
            .filter_map(|number| self.wanted.remove(&number).map(|(mutant, range)| (number, mutant, range)))
            .collect()
    }

    fn refuse(&mut self, genre: &str, place: &Range<usize>, reason: &'static str) {
        for (number, ..) in self.take(genre, |range| range.start >= place.start && range.end <= place.end) {
            self.unguarded.insert(number, reason);
        }
    }

    /// The innermost function around the replaced body gets it.
    fn place_returns(&mut self) {
        let mut functions = std::mem::take(&mut self.functions);
        functions.sort_by_key(|body| body.len());
        for body in functions {
            let returns = self.take("FnValue", |range| range.start >= body.start && range.end <= body.end);
            if !returns.is_empty() {
                let values = returns.into_iter().map(|(number, mutant, _)| (number, mutant.replacement.clone())).collect();
                self.sites.push(Site { range: body.start + 1..body.start + 1, kind: Kind::Returns(values) });
            }
        }
    }

    fn function(&mut self, signature: &Signature, block: &Block) {
        let body = block.span().byte_range();
        if signature.constness.is_some() {
            self.refuse_all(&body);
        }
        self.functions.push(body);
    }

    /// What is computed when the library is compiled has one value.
    fn refuse_all(&mut self, place: &Range<usize>) {
        for genre in ["FnValue", "BinaryOperator", "UnaryOperator", "MatchArm", "MatchArmGuard", "StructField"] {
            self.refuse(genre, place, CONSTANT);
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        self.refuse_all(&item.expr.span().byte_range());
    }

    fn visit_impl_item_const(&mut self, item: &'ast ImplItemConst) {
        self.refuse_all(&item.expr.span().byte_range());
    }

    fn visit_item_static(&mut self, item: &'ast ItemStatic) {
        self.refuse_all(&item.expr.span().byte_range());
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_expr_binary(&mut self, expression: &'ast ExprBinary) {
        let whole = expression.span().byte_range();
        let operator = expression.op.span().byte_range();
        if holds_let(&Expr::Binary(expression.clone())) {
            self.refuse("BinaryOperator", &operator, IN_CHAIN);
        }
        let others = self.take("BinaryOperator", |range| *range == operator);
        if !others.is_empty() {
            let others = others.into_iter().map(|(number, mutant, _)| (number, mutant.replacement.clone())).collect();
            let (left, right) = (expression.left.span().byte_range(), expression.right.span().byte_range());
            self.sites.push(Site { range: whole, kind: Kind::Binary { left, operator, right, others } });
        }
        visit::visit_expr_binary(self, expression);
    }

    fn visit_expr_unary(&mut self, expression: &'ast ExprUnary) {
        let operator = expression.op.span().byte_range();
        for (number, ..) in self.take("UnaryOperator", |range| *range == operator) {
            let operand = expression.expr.span().byte_range();
            self.sites.push(Site { range: expression.span().byte_range(), kind: Kind::Unary { operand, number } });
        }
        visit::visit_expr_unary(self, expression);
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        let whole = arm.span().byte_range();
        if let Some((_, guard)) = &arm.guard {
            let range = guard.span().byte_range();
            if holds_let(guard) {
                self.refuse("MatchArmGuard", &range, IN_CHAIN);
            }
            let constants = self.take("MatchArmGuard", |found| *found == range);
            if !constants.is_empty() {
                let constants =
                    constants.into_iter().map(|(number, mutant, _)| (number, mutant.replacement.clone())).collect();
                self.sites.push(Site { range, kind: Kind::Guard(constants) });
            }
        }
        let is_here = |range: &Range<usize>| range.start == whole.start && range.end.abs_diff(whole.end) <= 1;
        for (number, ..) in self.take("MatchArm", is_here) {
            let end = match &arm.guard {
                Some((keyword, _)) => keyword.span().byte_range().end,
                None => arm.pat.span().byte_range().end,
            };
            let kind = Kind::ArmEnd { number, has_guard: arm.guard.is_some() };
            self.sites.push(Site { range: end..end, kind });
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_struct(&mut self, expression: &'ast ExprStruct) {
        let mut left_out = Vec::new();
        for pair in expression.fields.pairs() {
            let field = pair.value().span().byte_range();
            let end = pair.punct().map_or(field.end, |comma| comma.span().byte_range().end);
            let is_here = |range: &Range<usize>| range.start == field.start && range.end <= end;
            left_out.extend(self.take("StructField", is_here).into_iter().map(|(number, ..)| (number, field.start..end)));
        }
        if !left_out.is_empty() {
            self.sites.push(Site { range: expression.span().byte_range(), kind: Kind::Fields(left_out) });
        }
        visit::visit_expr_struct(self, expression);
    }
}

/// Whether a condition binds by `let`, and so cannot stand in parentheses.
fn holds_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(binary) => holds_let(&binary.left) || holds_let(&binary.right),
        _ => false,
    }
}
