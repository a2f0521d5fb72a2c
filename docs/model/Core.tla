-------------------------------- MODULE Core --------------------------------
(* What the models share: rows with tokens, and documents under external   *)
(* versions. A token is the number of its claim, so each claim has another.*)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Workers,
    Claims,   \* of one row, by faults: one less can meet it
    Bug       \* the mutation of this run, or "none"

VARIABLE rows \* of search_outbox_events: status, and how often it was claimed

Row(status) == [status |-> status, claims |-> 0]
Become(e, status) == [rows EXCEPT ![e].status = status]
Claimed(e) == [rows EXCEPT ![e] = [status |-> "processing", claims |-> @.claims + 1]]

Is(e, status) == rows[e].status = status
Holds(e, token) == Is(e, "processing") /\ rows[e].claims = token
MayComeBack(e) == rows[e].claims < Claims

(* Every exit of a worker carries the token: a late one changes nothing.   *)
Settled(e, token, status) ==
    IF Holds(e, token) \/ Bug = "settle without the token" THEN Become(e, status) ELSE rows

(* A lease may end at any time: that is the worst that any clock can do.   *)
Reclaimed(e) == Is(e, "processing") /\ MayComeBack(e) /\ rows' = Become(e, "pending")

-----------------------------------------------------------------------------
Gone == {0}     \* what stands where no document is
Forgotten == [v |-> 0, body |-> Gone]
Accepts(document, v) == v >= document.v      \* external_gte
Written(document, v, body) == IF Accepts(document, v) THEN [v |-> v, body |-> body] ELSE document

Alike == Permutations(Workers)
Max(a, b) == IF a > b THEN a ELSE b
=============================================================================
