/* Pages come before the objects and modules of the reference. */
var Scorer = {
  score: ([page, title, anchor, description, score]) => (page.startsWith("docs/api/") ? score - 30 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
