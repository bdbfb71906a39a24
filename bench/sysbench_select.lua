-- The select of pgbench's -S for sysbench: one row of pgbench_accounts by its key, prepared.
sysbench.cmdline.options = { scale = { "Scale of pgbench's data", 10 } }

function thread_init()
  connection = sysbench.sql.driver():connect()
  statement = connection:prepare("SELECT abalance FROM pgbench_accounts WHERE aid = ?")
  aid = statement:bind_create(sysbench.sql.type.INT)
  statement:bind_param(aid)
end

function event()
  aid:set(sysbench.rand.uniform(1, 100000 * sysbench.opt.scale))
  statement:execute():free()
end

function thread_done()
  statement:close()
  connection:disconnect()
end
