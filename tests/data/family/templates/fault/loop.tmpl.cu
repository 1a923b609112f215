//@ while true do end
