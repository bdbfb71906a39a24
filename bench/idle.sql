\if :client_id < :active
\set pause random(10, 30)
\sleep :pause ms
SELECT abalance FROM pgbench_accounts WHERE aid = 1;
\else
\sleep :idle s
\endif
